"""The errors that handler authors and readers of a failed task get.

Standard library only. `error_name` says under which name an exception fails a task; a class may choose its own with
`task_error`.
"""

from typing import ClassVar

from activity_worker.contract.names import ERROR_WORKER_STOPPED
from activity_worker.contract.report import PollFault


class ActivityError(Exception):
    """Base of everything that this runtime raises towards handlers and their callers."""

    #: The error name with which a task fails because of it; empty: the name of the class.
    task_error: ClassVar[str] = ""
    #: Whether the task fails whatever `on_error` says, because leaving it would lose it silently.
    always_fails: ClassVar[bool] = False
    #: Whether the task was cut short from outside, so that it has no outcome of its own.
    interrupted: ClassVar[bool] = False


class PortError(Exception):
    """A command cannot listen on an address or port that it was given; the message says why."""


class NoResponseSentError(ActivityError):
    """A handler with the toolkit returned without `respond.success` or `respond.failure`."""

    def __init__(self, message: str = "No response sent after handling") -> None:
        super().__init__(message)


class ResponseAlreadySentError(ActivityError):
    """A handler answered a second time; the first answer stands."""

    def __init__(self, message: str = "Task response already sent") -> None:
        super().__init__(message)


class InvalidTaskInputError(ActivityError):
    """The task's input is not JSON; the handler is not called."""

    def __init__(self, message: str = "Could not parse task input") -> None:
        super().__init__(message)


class InputInvalidError(ActivityError):
    """The task's input does not fit the handler's annotation; the handler is not called.

    The message has each problem's path and rule, and never a value of the input.
    """

    task_error = "ActivityPool.InputInvalid"
    always_fails = True


class UnknownActivityError(ActivityError):
    """The worker's registry has no handler for the task's activity."""

    task_error = "ActivityPool.UnknownActivity"
    always_fails = True


class HandlerSignatureError(ActivityError, TypeError):
    """The handler has none of the known forms; the message says what is wrong and shows the forms."""


class CapabilitiesError(ActivityError):
    """What was named as the handler is not what the source needs."""


class TaskFailed(ActivityError):  # noqa: N818 - a word that a handler says, not a mishap
    """Raise it in a handler to fail the task under a name of your own, for the state machine's Retry and Catch."""

    def __init__(self, error: str, cause: str = "") -> None:
        super().__init__(cause or error)
        self.error = error
        self.cause = cause


class TaskCancelled(ActivityError):  # noqa: N818 - a word that a handler says, not a mishap
    """Raise it in a handler whose cancellation is requested, when the work has ended: the task is cancelled.

    `details` is a text for the decider. A coroutine that lets `CancelledError` pass says the same without details.
    Without a request to cancel, the task fails as `TaskCancelled`.
    """

    def __init__(self, details: str = "") -> None:
        super().__init__(details)
        self.details = details


class RetryTask(ActivityError):  # noqa: N818 - a word that a handler says, not a mishap
    """Raise it in a handler to have the task of a taskbroker tried again while attempts are left."""


class ConcludeLater(ActivityError):  # noqa: N818 - a word that a handler says, not a mishap
    """Raise it in a handler that has handed the task's token away: the worker gives no answer and frees the slot.

    The process that has the token sends the task's heartbeats and concludes it, with `activity_worker.conclusion` or
    `activity-worker conclude`.
    """

    always_fails = True


class CannotConcludeLaterError(ActivityError):
    """A handler raised `ConcludeLater` for a task that only this worker can conclude."""

    task_error = "ActivityPool.CannotConcludeLater"
    always_fails = True

    def __init__(self, message: str = "ConcludeLater: only the worker that has this task can conclude it") -> None:
        super().__init__(message)


class OutputNotJsonError(ActivityError):
    """The output cannot be written as JSON (NaN and infinity included)."""

    task_error = "ActivityPool.OutputNotJson"
    always_fails = True


class OutputTooLargeError(ActivityError):
    """The output is longer than the service takes."""

    task_error = "ActivityPool.OutputTooLarge"
    always_fails = True


class OutputRejectedError(ActivityError):
    """The service refused the output for a reason of its own."""

    task_error = "ActivityPool.OutputRejected"
    always_fails = True


class TaskCancelledError(ActivityError):
    """The runtime cancelled the handler: the lease is lost, the deadline has passed, or the worker stops."""

    always_fails = True


class CancellationRequestedError(TaskCancelledError):
    """The decider has asked for the cancellation of the task, and the handler has ended."""


class CancellationNotRequestedError(ActivityError):
    """A handler confirmed a cancellation that was not requested."""

    def __init__(self, message: str = "the cancellation of the task is not requested") -> None:
        super().__init__(message)


class DeadlineExceededError(TaskCancelledError):
    """The handler ran longer than the task's hard deadline."""

    task_error = "ActivityPool.DeadlineExceeded"


class WorkerStoppedError(TaskCancelledError):
    """The worker stopped before the handler had finished."""

    task_error = ERROR_WORKER_STOPPED
    interrupted = True


class SourceError(ActivityError):
    """The task source refused a call or could not be asked: `code` and `message` are its own words.

    `fix` is what somebody who reads the worker's log should do about it, "" where that is not known.
    """

    #: Whether the same call may succeed later by itself.
    retryable: ClassVar[bool] = False
    #: What a worker says of itself when its polls fail so.
    fault: ClassVar[PollFault] = PollFault.OTHER

    def __init__(self, code: str, message: str = "", *, fix: str = "") -> None:
        words = f"{code}: {message}" if message else code
        super().__init__(f"{words}; {fix}" if fix else words)
        self.code = code
        self.message = message
        self.fix = fix


class ThrottledError(SourceError):
    """The source asks for fewer calls; the call was not made."""

    retryable = True
    fault = PollFault.THROTTLED


class UnreachableError(SourceError):
    """No answer, or a fault of the service: whether the call was made is not known."""

    retryable = True
    fault = PollFault.UNREACHABLE


class DeniedError(SourceError):
    """Who we are is the reason: credentials or permissions. They may come back, so conclusions are tried again."""

    retryable = True
    fault = PollFault.DENIED


class MissingError(SourceError):
    """What was asked about does not exist: the activity, most of the time."""

    fault = PollFault.MISSING


class LeaseLostError(SourceError):
    """The task is no longer ours: it timed out, or it does not exist any more (TaskTimedOut, TaskDoesNotExist)."""


class InvalidTokenError(SourceError):
    """The source does not know this token. Some emulators say so of heartbeats for tasks without HeartbeatSeconds."""


def error_name(error: BaseException) -> str:
    """Return the error name under which `error` fails a task: its own choice, else the name of its class."""
    if isinstance(error, TaskFailed):
        return error.error
    return getattr(error, "task_error", "") or type(error).__name__
