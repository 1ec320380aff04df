"""PURE: what runners do, for metrics: plain notes that can also cross a process's boundary."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, get_args

from activity_worker.steps.model.definition import SubStep
from activity_worker.steps.model.instance import Instance, Lost, Outcome, Raised

CallOutcome = Literal["returned", "raised", "lost"]
_OUTCOMES, _COMPLETED, _SUB_STEPS = get_args(CallOutcome), {"", "succeeded", "failed"}, get_args(SubStep)


@dataclass(frozen=True, slots=True)
class CallSummary:
    """One call and what followed from it: is it tried `again`, was the instance turned back, is it complete."""

    task: str
    sub_step: str
    outcome: CallOutcome
    seconds: float = 0.0
    again: bool = False
    turned_back: bool = False
    completed: Literal["", "succeeded", "failed"] = ""

    def to_wire(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Return the note that such data stands for. Raises ValueError when it is none."""
        try:
            note = cls(**{field.name: wire[field.name] for field in fields(cls)})
            known = note.sub_step in _SUB_STEPS and note.outcome in _OUTCOMES and note.completed in _COMPLETED
            if not (known and note.seconds >= 0 and isinstance(note.task, str)):
                raise ValueError(f"no note of a call: {note.sub_step!r}, {note.outcome!r}, {note.completed!r}")
        except (KeyError, TypeError) as error:
            raise ValueError(f"no note of a call: {error}") from None
        return note


def summarize_call(before: Instance, outcome: Outcome, after: Instance, seconds: float) -> CallSummary:
    """Return the note of a call: `before` it was running, `after` its outcome is recorded."""
    return CallSummary(
        task=before.task_name,
        sub_step=before.status.sub_step,
        outcome=_outcome(outcome),
        seconds=seconds,
        again=_tries(after, before) > _tries(before, before),
        turned_back=after.status.success_orig is not None and before.status.success_orig is None,
        completed=_completed(after),
    )


def _outcome(outcome: Outcome) -> CallOutcome:
    if isinstance(outcome, Lost):
        return "lost"
    return "raised" if isinstance(outcome, Raised) else "returned"


def _tries(instance: Instance, before: Instance) -> int:
    """How often the sub-step of `before` was tried, as far as `instance` stands at the same step."""
    same = instance.status.step_num == before.status.step_num
    return instance.status.tries.get(before.status.sub_step, 0) if same else 0


def _completed(instance: Instance) -> Literal["", "succeeded", "failed"]:
    if not instance.complete:
        return ""
    return "succeeded" if instance.success else "failed"


class RunObserver:
    """Hears what a runner does. This one keeps nothing."""

    def claimed(self, before: Instance, after: Instance, now: float, took_seconds: float) -> None:
        """An instance was taken at `now` (Unix seconds), by a claim that took so long."""

    def called(self, before: Instance, outcome: Outcome, after: Instance, seconds: float) -> None:
        """A call ended, and that is recorded; it took so long."""
