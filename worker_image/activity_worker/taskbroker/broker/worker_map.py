"""PURE: the workers to which a broker pushes, by the tasks that they take, and how many more each one may get now.

Times are those of one clock that never goes back, in seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from activity_worker.taskbroker.store.statements import TaskFilter

#: How long a registration lasts. A worker repeats it three times as often.
REGISTRATION_SECONDS: Final = 30.0
#: Errors in a row after which a worker is set aside, and for how long.
MAX_ERRORS: Final = 3
ASIDE_SECONDS: Final = 20.0
#: Seconds until the next health check of a worker that had an error, or is not serving.
CHECK_SECONDS: Final = 1.0
#: Seconds without a push after a worker was busy: the first time, growing up to the last.
FIRST_BUSY_SECONDS: Final = 0.1
MAX_BUSY_SECONDS: Final = 2.0
#: The most tasks that are claimed for one worker at once.
MAX_AT_ONCE: Final = 20
#: The most workers that one broker pushes to.
MAX_WORKERS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Registration:
    """What a worker, or the broker's configuration, says of itself.

    `slots` is how many tasks the worker runs at once (None: unknown), `busy` how many of them have one. `callback_url`
    comes back with each task. `tls_name` is the name in its certificate if that is another one than the host.
    """

    address: str
    wanted: TaskFilter
    slots: int | None = None
    busy: int = 0
    callback_url: str = ""
    tls_name: str = ""


@dataclass(slots=True)
class PushWorker:
    """One worker, and how its pushes went lately."""

    registration: Registration
    expires_at: float
    #: Whether its health check has passed since the last error.
    healthy: bool = False
    #: When its health is checked next, if it is not healthy.
    check_at: float = float("-inf")
    pushing: int = 0
    errors: int = 0
    _tasks: dict[str, float] = field(default_factory=dict)
    _busy_until: float = float("-inf")
    _busy_seconds: float = 0.0

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return self.registration.address

    def room(self, now: float) -> int:
        """Return how many tasks may be pushed now."""
        if not self.healthy or now >= self.expires_at or now < self._busy_until:
            return 0
        slots = self.registration.slots
        if slots is None:
            return 1 - self.pushing
        for task_id in [one for one in self._tasks if not self.has(one, now)]:
            del self._tasks[task_id]
        return max(slots - self.pushing - len(self._tasks), 0)

    def has(self, task_id: str, now: float) -> bool:
        """Return whether the worker has a task, as far as this broker knows."""
        return self._tasks.get(task_id, float("-inf")) > now

    def accepted(self, task_id: str, until: float) -> None:
        """Note a task that the worker has until its report comes, at most `until`."""
        self._tasks[task_id] = until
        self.errors, self._busy_seconds = 0, 0.0

    def reported(self, task_id: str) -> bool:
        """Note a report; return whether the worker had this task."""
        if self._tasks.pop(task_id, None) is None:
            return False
        self._busy_until = float("-inf")
        return True

    def refused_as_busy(self, now: float) -> None:
        """Note that the worker refused a task because all its slots have one."""
        self.errors = 0
        self._busy_seconds = min(max(2 * self._busy_seconds, FIRST_BUSY_SECONDS), MAX_BUSY_SECONDS)
        self._busy_until = now + self._busy_seconds

    def failed(self, now: float) -> None:
        """Note an error: the next push needs a health check, which after several errors in a row has to wait."""
        self.errors += 1
        self.healthy = False
        self.check_at = now + (ASIDE_SECONDS if self.errors >= MAX_ERRORS else CHECK_SECONDS)

    def renew(self, registration: Registration, expires_at: float) -> None:
        """Take a new registration. Tasks beyond its `busy` have ended without a report that came here."""
        self.registration, self.expires_at = registration, expires_at
        if registration.slots is not None and not self.pushing:
            for task_id in list(self._tasks)[: max(len(self._tasks) - registration.busy, 0)]:
                del self._tasks[task_id]


class WorkerMap:
    """All workers of a broker, by their addresses."""

    def __init__(self) -> None:
        self._workers: dict[str, PushWorker] = {}
        #: Who has a task, by its id.
        self._holders: dict[str, PushWorker] = {}

    def register(self, registration: Registration, now: float) -> bool:
        """Take a registration; return False if there are too many workers. With no slots the worker leaves."""
        worker = self._workers.get(registration.address)
        if worker is not None:
            worker.renew(registration, now if registration.slots == 0 else now + REGISTRATION_SECONDS)
        elif registration.slots != 0:
            if len(self._workers) >= MAX_WORKERS:
                return False
            self._workers[registration.address] = PushWorker(registration, now + REGISTRATION_SECONDS)
        return True

    def workers(self) -> Sequence[PushWorker]:
        """Return every worker."""
        return list(self._workers.values())

    def get(self, address: str) -> PushWorker | None:
        """Return the worker of an address."""
        return self._workers.get(address)

    def with_room(self, now: float) -> Mapping[TaskFilter, list[PushWorker]]:
        """Return the workers that may get a task now, by what they take; one place in a list for each task.

        The places alternate between the workers, so that tasks spread over them.
        """
        found: dict[TaskFilter, list[PushWorker]] = {}
        rooms = [(worker, room) for worker in self._workers.values() if (room := worker.room(now)) > 0]
        for turn in range(min(max((room for _, room in rooms), default=0), MAX_AT_ONCE)):
            for worker, room in rooms:
                if turn < room:
                    found.setdefault(worker.registration.wanted, []).append(worker)
        return found

    def accepted(self, worker: PushWorker, task_id: str, until: float) -> None:
        """Note a task that a worker has until its report comes, at most `until`."""
        worker.accepted(task_id, until)
        self._holders[task_id] = worker

    def reported(self, task_id: str) -> bool:
        """Note a report; return whether it was about a task that this broker has pushed."""
        worker = self._holders.pop(task_id, None)
        return worker is not None and worker.reported(task_id)

    def remove_expired(self, now: float) -> Sequence[PushWorker]:
        """Remove the workers whose registrations have ended and that no push waits for, and return them."""
        gone = [worker for worker in self._workers.values() if worker.expires_at <= now and not worker.pushing]
        for worker in gone:
            del self._workers[worker.address]
        for task_id in [one for one, worker in self._holders.items() if not worker.has(one, now)]:
            del self._holders[task_id]
        return gone
