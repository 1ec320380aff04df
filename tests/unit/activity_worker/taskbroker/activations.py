"""Activations for tests, and a broker's store as a dict: what the stores have to do, in the fewest words."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from activity_worker.taskbroker.lifecycle.inflight import (
    Inflight,
    Outcome,
    admit,
    claim,
    deliver,
    give_out,
    release,
    report,
)
from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.lifecycle.upkeep import DeadLetter, UpkeepStep, advance, id_kept_until, is_due
from activity_worker.taskbroker.protocol.activation import Activation, RetryState, message_of

NOW = 1_000_000.0
GRACE = 3.0
MAX_ATTEMPTS = 3
CLAIM_SECONDS = 12.0


def activation_bytes(task_id: str = "one", *, retry: RetryState | None = None, **fields: Any) -> bytes:
    """Return a serialized activation."""
    activation = Activation(**{"id": task_id, "namespace": "mail", "taskname": "send", "retry": retry, **fields})
    data: bytes = message_of(activation).SerializeToString()
    return data


def pending(task_id: str = "one", *, now: float = NOW, retry: RetryState | None = None, **fields: Any) -> Inflight:
    """Return an activation as it is admitted."""
    return admit(activation_bytes(task_id, retry=retry, **fields), now)


@dataclass
class DictStore:
    """A store in a dict, in the order of admission."""

    ids: Iterator[str]
    rows: dict[str, Inflight] = field(default_factory=dict)
    dead: list[DeadLetter] = field(default_factory=list)
    #: Until when an id of a task that is over is not taken again.
    finished: dict[str, float] = field(default_factory=dict)

    def add(self, data: bytes, now: float) -> bool:
        inflight = admit(data, now)
        if inflight.id in self.rows or self.finished.get(inflight.id, 0.0) > now:
            return False
        self.rows[inflight.id] = inflight
        return True

    def take(self, now: float) -> Inflight | None:
        if (first := self._first(now)) is None:
            return None
        self.rows[first.id] = given = give_out(first, now, GRACE)
        return given

    def claim(self, now: float) -> Inflight | None:
        if (first := self._first(now)) is None:
            return None
        self.rows[first.id] = claimed = claim(first, now, CLAIM_SECONDS)
        return claimed

    def end_claim(self, claimed: Inflight, now: float, *, accepted: bool) -> bool:
        row = self.rows.get(claimed.id)
        if row is None or (row.state, row.attempts) != (ActivationState.CLAIMED, claimed.attempts):
            return False
        self.rows[row.id] = deliver(row, now, GRACE) if accepted else release(row)
        return True

    def _first(self, now: float) -> Inflight | None:
        ready = [row for row in self.rows.values() if row.state == ActivationState.PENDING and not row.is_expired(now)]
        return min(ready, key=lambda row: row.due_at, default=None)

    def report(self, task_id: str, outcome: Outcome) -> bool:
        after = report(self.rows[task_id], outcome) if task_id in self.rows else None
        if after is not None:
            self.rows[task_id] = after
        return after is not None

    def upkeep(self, now: float) -> None:
        for step in UpkeepStep:
            for row in list(self.rows.values()):
                if is_due(step, row, now):
                    self._apply(step, row, now)
        self.finished = {task_id: until for task_id, until in self.finished.items() if until > now}

    def _apply(self, step: UpkeepStep, row: Inflight, now: float) -> None:
        new_id = "" if step is UpkeepStep.REMOVE_COMPLETE else next(self.ids)
        change = advance(step, row, now, max_attempts=MAX_ATTEMPTS, new_id=new_id)
        if change.after is None:
            del self.rows[row.id]
            self.finished[row.id] = id_kept_until(row.added_at)
        else:
            self.rows[row.id] = change.after
        if change.appended is not None:
            self.rows[change.appended.id] = change.appended
        if change.dead_letter is not None:
            self.dead.append(change.dead_letter)
