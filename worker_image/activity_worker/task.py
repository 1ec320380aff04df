"""A task as slots and handlers know it: the request, the response, and the slot that runs it."""

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from activity_worker.contract import LeasedTask, lease_id


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


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """What a handler is asked to do. `input` is the parsed JSON, None when it could not be parsed."""

    #: What a handler's parameter with this annotation gets.
    __activity_role__: ClassVar[str] = "request"

    worker: WorkerIdentity = field(repr=False)
    task: LeasedTask
    input: Any = field(repr=False)

    @property
    def input_text(self) -> str | None:
        """The input as JSON text, None if only the parsed form is `input`: the input of an SWF task is any text."""
        return self.task.input if self.task.activity is None else None

    @property
    def activity(self) -> str:
        """The name of the task's activity: an activity of Step Functions, a type of Amazon SWF, or a queue."""
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
