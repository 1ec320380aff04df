"""How tasks are treated."""

from dataclasses import dataclass
from typing import Literal, get_args

OnError = Literal["fail", "leave"]


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How a worker treats its tasks.

    `heartbeat_seconds`: interval of task heartbeats (10, a third of a HeartbeatSeconds of 30).
    `deadline_seconds`: after it the handler is cancelled and the task failed, whatever it does (None: never).
    `on_error`: a handler that threw, or forgot to answer, is failed by default; "leave" lets its task time out.
    `cancel_grace_seconds`: a handler that ignores its cancellation for longer keeps its slot, not its task (5).
    `conclude_for_seconds`: how long an answer that the service cannot take is tried again (3600).
    """

    heartbeat_seconds: float = 10.0
    deadline_seconds: float | None = None
    on_error: OnError = "fail"
    cancel_grace_seconds: float = 5.0
    conclude_for_seconds: float = 3600.0

    def __post_init__(self) -> None:
        if not self.heartbeat_seconds > 0:
            raise ValueError(f"heartbeat_seconds: {self.heartbeat_seconds}: must be above 0")
        if self.deadline_seconds is not None and not self.deadline_seconds > 0:
            raise ValueError(f"deadline_seconds: {self.deadline_seconds}: must be above 0, or None for no deadline")
        if self.on_error not in get_args(OnError):
            raise ValueError(f"on_error: {self.on_error!r}: must be one of {', '.join(get_args(OnError))}")
        if self.cancel_grace_seconds < 0:
            raise ValueError(f"cancel_grace_seconds: {self.cancel_grace_seconds}: must be 0 or more")
        if self.conclude_for_seconds < 0:
            raise ValueError(f"conclude_for_seconds: {self.conclude_for_seconds}: must be 0 or more")
