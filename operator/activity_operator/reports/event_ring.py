"""The story of a pool's workers: a short ring in which repeats are counted, not repeated."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from activity_worker.contract import MAX_MESSAGE_LENGTH, OOM_KILLED, EventName, ExitOutput, LifecycleEvent

#: How many different entries a pool keeps.
RING_SIZE = 20
#: What of a worker's own events is told in its pool's status; the others are acknowledged and counted by the worker.
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
    """One entry: what happened how often, when first and last (Unix seconds), and to which pod last.

    `exit_code` belongs to `worker:stopped` and is None elsewhere and where it is not known.
    """

    name: str
    message: str
    count: int
    first_at: float
    at: float
    pod: str = ""
    exit_code: int | None = None


class EventRing:
    """The last `RING_SIZE` different entries of one pool, the one that happened last at the end."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, int | None], PoolEvent] = {}

    def __iter__(self) -> Iterator[PoolEvent]:
        return iter(self._entries.values())

    def add(self, name: str, message: str, at: float, pod: str, exit_code: int | None = None) -> bool:
        """Count the event; tell whether it is one that the ring did not have."""
        message = message[:MAX_MESSAGE_LENGTH]
        key = (name, message, exit_code)
        before = self._entries.pop(key, None)
        if before is None:
            self._entries[key] = PoolEvent(name, message, 1, at, at, pod, exit_code)
            if len(self._entries) > RING_SIZE:
                del self._entries[next(iter(self._entries))]
            return True
        self._entries[key] = replace(before, count=before.count + 1, at=max(at, before.at), pod=pod)
        return False

    def add_reported(self, event: LifecycleEvent, pod: str, end: ExitOutput | None, now: float) -> bool:
        """Count a worker's event if it is one that is told; its time is not trusted to lie in the future."""
        if event.name not in TOLD:
            return False
        stopped = event.name == EventName.WORKER_STOPPED and end is not None
        message, code = (event.message or end.error, end.code) if stopped and end else (event.message, None)
        return self.add(event.name, message, min(event.at, now), pod, code)
