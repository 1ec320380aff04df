"""PURE: a flow's definition: its queues in order, and what each of them does with a job."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from activity_worker.flows.javascript import number_text
from activity_worker.wire import redis_keys as keys


class FlowError(ValueError):
    """A flow, or what it is asked to do, cannot be used. The message names the field, the value and the fix."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue, whose workers do one sort of work.

    `attributes` are the fields of a job that its workers get; `next_queue` is where a job goes whose result does not
    say; `children` make it a parent, whose workers wait for other jobs. A child's name is its own, without the
    parent's. A job is a worker's for `lock_seconds` (180), and a worker asks again after `block_seconds` (3).
    """

    name: str
    attributes: tuple[str, ...] = ()
    next_queue: str = ""
    children: "tuple[Queue, ...]" = ()
    lock_seconds: int = keys.LOCK_SECONDS
    block_seconds: float = keys.BLOCK_SECONDS

    def __post_init__(self) -> None:
        if not self.name or self.name.split() != [self.name]:
            raise FlowError(f"queue.name: {self.name!r}: expected a name without blanks")
        if _is_text(self.attributes):
            raise FlowError(f"queue {self.name}: attributes: {self.attributes!r}: expected a tuple of names")
        if self.lock_seconds < 1:
            raise FlowError(f"queue {self.name}: lock_seconds: {self.lock_seconds}: must be at least 1")
        if not self.block_seconds > 0:
            raise FlowError(f"queue {self.name}: block_seconds: {self.block_seconds}: must be above 0")
        names = [child.name for child in self.children]
        if len(set(names)) < len(names):
            raise FlowError(f"queue {self.name}: children: {', '.join(names)}: give each a name of its own")


@dataclass(frozen=True, slots=True)
class FlowQueue:
    """A queue as the server knows it: its full name, and the flow that the jobs in it belong to."""

    flow: str
    name: str
    queue: Queue = field(repr=False)


@dataclass(frozen=True, slots=True)
class FlowDefinition:
    """A flow: a new job waits in the first of `queues`. Jobs are found again by the fields in `lookup`.

    A job is kept for `keep_seconds` (a day) after it was made, whatever becomes of it.
    """

    name: str
    queues: tuple[Queue, ...]
    lookup: tuple[str, ...] = ()
    keep_seconds: int = keys.KEEP_SECONDS

    def __post_init__(self) -> None:
        if not self.name or self.name.split() != [self.name]:
            raise FlowError(f"flow.name: {self.name!r}: expected a name without blanks")
        if not self.queues:
            raise FlowError(f"flow {self.name}: queues: give at least one")
        if self.keep_seconds < 1:
            raise FlowError(f"flow {self.name}: keep_seconds: {self.keep_seconds}: must be at least 1")
        names = [flow_queue.name for flow_queue in self.flow_queues()]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise FlowError(f"flow {self.name}: queues: {', '.join(twice)}: there more than once")
        for queue in self.queues:
            if queue.next_queue and queue.next_queue not in {other.name for other in self.queues}:
                raise FlowError(
                    f"flow {self.name}: queue {queue.name}: next_queue: {queue.next_queue!r}: no such queue"
                )

    def flow_queues(self) -> Iterator[FlowQueue]:
        """Yield every queue with its full name, children after their parent."""
        for queue in self.queues:
            yield from _flow_queues(self.name, queue.name, queue)

    def flow_queue(self, name: str) -> FlowQueue:
        """Return the queue with this full name: PARENT:CHILD for a child. Raises `FlowError`."""
        for flow_queue in self.flow_queues():
            if flow_queue.name == name:
                return flow_queue
        known = ", ".join(flow_queue.name for flow_queue in self.flow_queues())
        raise FlowError(f"flow {self.name}: queue {name!r}: no such queue; there are {known}")

    def lookups(self, fields: Mapping[str, Any]) -> list[str]:
        """Return the look-up lists of a job with these fields; raises `FlowError` for a value that names none."""
        found: list[str] = []
        for attribute in self.lookup:
            value = fields.get(attribute)
            values = value if isinstance(value, (list, tuple)) else [value] if _plain(value) else []
            found += [lookup_key(self.name, attribute, one) for one in values]
        return found


def lookup_key(flow: str, attribute: str, value: Any) -> str:
    """Return the list of the jobs whose attribute has a value, written as JavaScript would; raises `FlowError`."""
    if isinstance(value, bool) or value is None:
        text = {True: "true", False: "false", None: "null"}[value]
    elif isinstance(value, (int, float)):
        text = number_text(value)
    elif isinstance(value, str):
        text = value
    else:
        raise FlowError(f"{attribute}: a {type(value).__name__}: a job is looked up by text or by a number")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise FlowError(f"{attribute}: half of a surrogate pair: a job is looked up by text that UTF-8 can hold")
    return keys.lookup(flow, attribute, text)


def _is_text(value: object) -> bool:
    """Tell whether a tuple's place was given a text, which would pass for a tuple of letters."""
    return isinstance(value, str)


def _plain(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def _flow_queues(flow: str, name: str, queue: Queue) -> Iterator[FlowQueue]:
    yield FlowQueue(flow, name, queue)
    for child in queue.children:
        full = keys.child_name(name, child.name)
        # The jobs of a child queue are a flow of their own, which has the queue's name.
        yield from _flow_queues(full, full, child)
