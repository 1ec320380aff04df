"""One call of a handler, in a process of its own as in a worker, on an input that a person gave."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from activity_worker.contract import EventName
from activity_worker.errors import error_name
from activity_worker.events import EventEmitter
from activity_worker.runtime.failure import cause_of
from activity_worker.runtime.options import TaskOptions
from activity_worker.runtime.slot import Slot
from activity_worker.sources.memory import MemorySource
from activity_worker.subprocess.process import HandlerUnusableError
from activity_worker.subprocess.runner import SubprocessRunner

__all__ = ["CallResult", "HandlerUnusableError", "call_once"]

_ACTIVITIES = "arn:aws:states:us-east-1:123456789012:activity:"
_HEARTBEAT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class CallResult:
    """How a call ended: `output` is JSON text, None after a failure.

    `error` and `cause` are those of the failure, or of an exception after the answer.
    """

    output: str | None
    error: str = ""
    cause: str = ""


async def call_once(
    handler: str,
    text: str,
    *,
    activity: str = "invoke",
    python: str = "",
    environment: Mapping[str, str],
    deadline_seconds: float | None = None,
    on_progress: Callable[[Any], object] = lambda _: None,
) -> CallResult:
    """Call `handler` (`module:function`) with JSON text. Raises `HandlerUnusableError` if it cannot be started.

    `activity` is the name of the activity that the task is of, by which a registry finds its function; `python` is the
    interpreter of the handler's environment; `on_progress` gets the details of its heartbeats.
    """
    source, events, errors = MemorySource(_ACTIVITIES + activity), EventEmitter(), list[BaseException]()
    runner = SubprocessRunner(handler, python=python, environment=environment, on_capabilities=_refuse_tasks)
    options = TaskOptions(heartbeat_seconds=_HEARTBEAT_SECONDS, deadline_seconds=deadline_seconds)
    slot = Slot(source, runner=runner, worker_name="invoke", events=events, options=options)
    seen = 0

    def show_progress(*_: object) -> None:
        nonlocal seen
        progress = slot.current.respond.progress if slot.current is not None else None
        if progress is not None and progress.count > seen:
            seen = progress.count
            on_progress(progress.details)

    # The last details of a task that ends before its next heartbeat are shown at its end.
    for name in (EventName.TASK_HEARTBEAT, EventName.TASK_SUCCESS, EventName.TASK_FAILURE):
        events.on(name, show_progress)
    events.on(EventName.TASK_ERRORED, lambda _, error: errors.append(error))
    token = source.put(text)
    await slot.run_once()
    conclusion = source.conclusions.get(token)
    raised = (error_name(errors[0]), cause_of(errors[0])) if errors else ("", "")
    if conclusion is None:
        return CallResult(None, *(raised if errors else ("", "no answer")))
    if conclusion.result == "success":
        return CallResult(conclusion.output, *raised)
    return CallResult(None, conclusion.error, conclusion.cause)


def _refuse_tasks(capabilities: Mapping[str, Any] | None) -> None:
    if capabilities is not None:
        raise HandlerUnusableError("a Tasks object is run by `activity-worker steps`, and not called by itself")
