"""Which call is being made: for keys that make an effect happen once, and for logs."""

from contextvars import ContextVar
from dataclasses import dataclass

from activity_worker.steps.model.definition import CHECKED, SubStep


@dataclass(frozen=True, slots=True)
class Current:
    """The call that a runner makes now; `round` counts how often the instance was started again after it failed."""

    instance_id: str
    task_name: str
    step_num: int
    sub_step: SubStep
    revision: int
    runner: str
    round: int = 0

    @property
    def key(self) -> str:
        """An idempotency key: the same at every try of a call and in its check, another for every other call."""
        return f"{self.instance_id}/{self.round}/{self.step_num}/{CHECKED.get(self.sub_step, self.sub_step)}"


CURRENT: ContextVar[Current] = ContextVar("activity_worker_steps_current")


def current() -> Current:
    """Return the call that the calling method was made by. Raises LookupError outside of one."""
    try:
        return CURRENT.get()
    except LookupError:
        raise LookupError("no method of a task is being called here") from None
