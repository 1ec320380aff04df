"""PURE: what one worker has taken, what it still holds, and its totals since its container started.

A task is *held* from the lease to its conclusion, and its slot is *busy* from the lease to the end of the handling,
which can be later (a handler goes on after it answered) or earlier (a task left to time out).
"""

from dataclasses import dataclass, replace
from typing import Literal

from activity_worker.contract import Counters, HeldLease

Outcome = Literal["succeeded", "failed", "lost", "unconcluded"]


@dataclass(slots=True)
class _Entry:
    since: float
    outcome: Outcome | None = None


class Ledger:
    """Leases by id. Knows no clock: `now` is monotonic seconds."""

    def __init__(self, now: float) -> None:
        self._entries: dict[str, _Entry] = {}
        self._counters = Counters()
        self._idle_since = now

    @property
    def busy(self) -> int:
        """How many tasks are being handled."""
        return len(self._entries)

    def leased(self, lease: str, now: float) -> None:
        """A task came, by a poll or from the operator."""
        self._entries[lease] = _Entry(now)
        self._counters = replace(self._counters, received=self._counters.received + 1)

    def empty_poll(self) -> None:
        """A poll brought nothing."""
        self._counters = replace(self._counters, empty_polls=self._counters.empty_polls + 1)

    def heartbeat_failed(self) -> None:
        """A task heartbeat was not accepted."""
        self._counters = replace(self._counters, task_heartbeat_failures=self._counters.task_heartbeat_failures + 1)

    def concluded(self, lease: str, outcome: Outcome) -> None:
        """The service took the answer, or said that the lease is lost. The first word on a task counts."""
        entry = self._entries.get(lease)
        if entry is None or entry.outcome is not None:
            return
        entry.outcome = outcome
        if outcome == "succeeded":
            self._counters = replace(self._counters, succeeded=self._counters.succeeded + 1)
        elif outcome == "failed":
            self._counters = replace(self._counters, failed=self._counters.failed + 1)

    def ended(self, lease: str, now: float) -> tuple[Outcome, float] | None:
        """The handling is over: return its outcome and its seconds, or None for a lease that is not known."""
        entry = self._entries.pop(lease, None)
        if entry is None:
            return None
        seconds = now - entry.since
        self._counters = replace(self._counters, busy_seconds=self._counters.busy_seconds + seconds)
        if not self._entries:
            self._idle_since = now
        return entry.outcome or "unconcluded", seconds

    def held(self, now: float) -> tuple[HeldLease, ...]:
        """Return the leases that are not concluded, with their ages."""
        return tuple(
            HeldLease(lease, max(now - entry.since, 0.0))
            for lease, entry in self._entries.items()
            if entry.outcome is None
        )

    def counters(self, now: float) -> Counters:
        """Return the totals; tasks being handled count with the time they have taken so far."""
        running = sum(max(now - entry.since, 0.0) for entry in self._entries.values())
        return replace(self._counters, busy_seconds=self._counters.busy_seconds + running)

    def idle_seconds(self, now: float) -> float:
        """Return for how long no slot has been busy; 0 while one is."""
        return 0.0 if self._entries else max(now - self._idle_since, 0.0)
