"""The ring of a pool's lifecycle events: short, by worker, with a count for equal events of a worker."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from activity_operator.core.lifecycle_ring import event_to_drop
from activity_worker.contract import MAX_MESSAGE_LENGTH, OOM_KILLED, EventName, ExitOutput, LifecycleEvent

#: Most entries that a pool keeps.
RING_SIZE = 20
#: The workers' events that appear in the pool's status. The operator only acknowledges the others; workers count them.
TOLD = frozenset(
    {
        EventName.WORKER_STARTING,
        EventName.WORKER_RUNNING,
        EventName.WORKER_STOPPING,
        EventName.WORKER_STOPPED,
        EventName.WORKER_ERROR,
        EventName.POLLING_ERROR,
        OOM_KILLED,
    }
)


@dataclass(frozen=True, slots=True)
class PoolEvent:
    """One entry: a worker's event, how often it occurred, and the times of the first and the last one (Unix seconds).

    `exit_code` is only set for `worker:stopped`, and None if it is not known.
    """

    name: str
    message: str
    count: int
    first_at: float
    at: float
    pod: str = ""
    exit_code: int | None = None


class EventRing:
    """At most `RING_SIZE` entries of one pool, the most recent one at the end."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, str, int | None], PoolEvent] = {}

    def __iter__(self) -> Iterator[PoolEvent]:
        return iter(self._entries.values())

    def add(self, name: str, message: str, at: float, pod: str, exit_code: int | None = None) -> bool:
        """Add the event, or raise the count of an equal one of the pod.

        Return whether it is news for the pool: no worker has had such an event yet.
        """
        message = message[:MAX_MESSAGE_LENGTH]
        kind = (name, message, exit_code)
        is_news = all((entry.name, entry.message, entry.exit_code) != kind for entry in self)
        before = self._entries.pop((pod, *kind), None)
        if before is not None:
            self._entries[pod, *kind] = replace(before, count=before.count + 1, at=max(at, before.at))
            return False
        self._entries[pod, *kind] = PoolEvent(name, message, 1, at, at, pod, exit_code)
        if len(self._entries) > RING_SIZE:
            keys = list(self._entries)
            del self._entries[keys[event_to_drop([(pod, name, message) for pod, name, message, _ in keys])]]
        return is_news

    def add_reported(self, event: LifecycleEvent, pod: str, end: ExitOutput | None, now: float) -> bool:
        """Add a worker's event if `TOLD` has it; a time after `now` becomes `now`. Return whether it is news."""
        if event.name not in TOLD:
            return False
        stopped = event.name == EventName.WORKER_STOPPED and end is not None
        message, code = (event.message or end.error, end.code) if stopped and end else (event.message, None)
        return self.add(event.name, message, min(event.at, now), pod, code)
