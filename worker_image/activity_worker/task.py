"""A task as slots and handlers know it: the request, the response, and the slot that runs it."""

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, Protocol

from activity_worker.contract import LeasedTask, ScheduledActivity, lease_id


class WorkerIdentity(Protocol):
    """Who runs the task."""

    @property
    def worker_name(self) -> str:
        """The name under which it polls."""
        ...

    @property
    def activity_arn(self) -> str:
        """What it polls."""
        ...


def activity_name(polled: str) -> str:
    """Return the name in an activity's ARN, the queue in a Redis list's key, else the source's name as it is."""
    if polled.startswith("arn:"):
        return polled.rpartition(":")[2]
    return polled.removeprefix("queue:").removesuffix(":waiting")


#: The key of an input's object under which a state machine says where the task comes from.
ORIGIN_KEY: Final = "_activity"
_MAX_ORIGIN_LENGTH: Final = 2048


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a task comes from, as far as its input says so under `_activity`, or the headers of a broker's task.

    `execution` is the execution's id (an ARN on Step Functions), `name` its name, `state` the state's name. `attempt`
    counts the state's attempts from 1. `traceparent` and `tracestate` are those of W3C Trace Context.
    """

    execution: str = ""
    name: str = ""
    state: str = ""
    attempt: int = 1
    traceparent: str = ""
    tracestate: str = ""


NO_ORIGIN: Final = Origin()


def take_origin(value: Any, scheduled: ScheduledActivity | None = None) -> tuple[Any, Origin]:
    """Return an input without `_activity`, and what that key says. An input without the object stays as it is.

    The trace of such an input is the one that its source names in `scheduled`.
    """
    told = value.get(ORIGIN_KEY) if isinstance(value, dict) else None
    if not isinstance(told, dict):
        if scheduled is None or not scheduled.traceparent:
            return value, NO_ORIGIN
        return value, Origin(traceparent=scheduled.traceparent, tracestate=scheduled.tracestate)
    texts = {
        name: told[name][:_MAX_ORIGIN_LENGTH]
        for name in ("execution", "name", "state", "traceparent", "tracestate")
        if isinstance(told.get(name), str)
    }
    retries = told.get("retries")
    attempt = retries + 1 if type(retries) is int and retries >= 0 else 1
    return {key: item for key, item in value.items() if key != ORIGIN_KEY}, Origin(**texts, attempt=attempt)


@dataclass(frozen=True, slots=True)
class RetryTerms:
    """A handler's retry policy: attempts in all, seconds before the next one (None: the task's own).

    `on_deadline` tells whether a task that exceeds its deadline is tried again.
    """

    attempts: int
    delay: int | None = None
    on_deadline: bool = True


@dataclass(frozen=True, slots=True)
class RetryRequest:
    """What a failed task's handler says about another attempt; `terms` is None for a handler without a policy.

    `interrupted`: the task has no outcome, because its handler's process died or the worker stopped.
    """

    wanted: bool
    terms: RetryTerms | None = None
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """What a handler is asked to do. `input` is the parsed JSON, None when it could not be parsed.

    `origin` is what the input said under `_activity`, or a broker's headers. `deadline_at` is when the runtime ends the
    handler, in Unix seconds; None: never. `log_keys` are keys that middleware gives the log lines of the task.
    """

    #: What a handler's parameter with this annotation gets.
    __activity_role__: ClassVar[str] = "request"

    worker: WorkerIdentity = field(repr=False)
    task: LeasedTask
    input: Any = field(repr=False)
    origin: Origin = field(default=NO_ORIGIN, repr=False)
    deadline_at: float | None = field(default=None, repr=False)
    log_keys: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def execution(self) -> str:
        """The execution that the task belongs to, "" where neither the input nor the source says so."""
        return self.origin.execution or ("" if self.task.activity is None else self.task.activity.workflow_id)

    @property
    def input_text(self) -> str | None:
        """The input as JSON text, None if only the parsed form is `input`: the input of an SWF task is any text."""
        return self.task.input if self.task.activity is None and self.origin is NO_ORIGIN else None

    @property
    def activity(self) -> str:
        """The name of the task's activity: of Step Functions, a type of Amazon SWF, a broker's task, or a queue."""
        return activity_name(self.worker.activity_arn) if self.task.activity is None else self.task.activity.name

    @property
    def lease_id(self) -> str:
        """The task's name for logs and reports: a hash of its token (32 hex characters)."""
        return lease_id(self.task.token)


@dataclass(frozen=True, slots=True)
class TaskResponse:
    """The accepted answer. `output_text` is JSON; `error` and `cause` are as sent, trimmed to its limits.

    The `cause` of a cancelled task is the details of its cancellation. The result `later` is no answer: somebody else,
    who has the task's token, concludes the task.
    """

    result: Literal["success", "failure", "cancelled", "later"]
    output_text: str = field(default="null", repr=False)
    error: str = ""
    cause: str = field(default="", repr=False)

    @property
    def output(self) -> Any:
        """The output as the service saw it; None for a failure."""
        return json.loads(self.output_text)
