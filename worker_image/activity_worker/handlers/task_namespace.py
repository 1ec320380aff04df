"""Tasks of a taskbroker in the published client's form: a namespace, and `register` as the decorator of its tasks.

    app = Activities()
    mail = TaskNamespace(app, "mail")

    @mail.register(name="send", retry=Retry(attempts=3, delay=60), processing_deadline_duration=30)
    def send(order: int, *, urgent: bool = False) -> None: ...

The function is called with the task's arguments, and stays callable as it is. What it returns is dropped.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from activity_worker.errors import InputInvalidError
from activity_worker.handlers.registry import Activities
from activity_worker.handlers.retry import Retry
from activity_worker.task import TaskRequest
from activity_worker.taskbroker.protocol.arguments import from_json

if TYPE_CHECKING:
    from activity_worker.taskbroker.producer import NewTask

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class RegisteredTask(Generic[_Parameters, _Result]):
    """A function that is a task: call it, or make a task of it with `new`. Durations are in whole seconds."""

    namespace: str
    name: str
    function: Callable[_Parameters, _Result] = field(repr=False)
    retry: Retry | None = None
    processing_deadline_duration: int = 10
    expires: int | None = None
    at_most_once: bool = False
    dead_letter: bool = False

    def __call__(self, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        """Call the function here and now."""
        return self.function(*args, **kwargs)

    def new(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        countdown: int | None = None,
        application: str | None = None,
    ) -> "NewTask":
        """Return a task for `TaskProducer.enqueue`; `countdown` delays its start. Needs the extra taskbroker."""
        from activity_worker.taskbroker.producer import NewTask  # noqa: PLC0415 - gRPC, which a worker's handler lacks
        from activity_worker.taskbroker.protocol.activation import OnAttemptsExceeded, RetryState  # noqa: PLC0415

        last = OnAttemptsExceeded.DEADLETTER if self.dead_letter else OnAttemptsExceeded.DISCARD
        return NewTask(
            self.namespace,
            self.name,
            args=args,
            kwargs=kwargs or {},
            application=application,
            processing_deadline=self.processing_deadline_duration,
            retry=RetryState(
                max_attempts=1 if self.retry is None else self.retry.attempts,
                on_attempts_exceeded=last,
                at_most_once=self.at_most_once,
                delay_on_retry=None if self.retry is None else self.retry.delay,
            ),
            expires=self.expires,
            delay=countdown,
        )


class TaskNamespace:
    """The tasks of one namespace, in the registry `app`; `retry` is the policy of tasks that have none."""

    def __init__(self, app: Activities, name: str, *, retry: Retry | None = None) -> None:
        if not name:
            raise ValueError("namespace: name='': must not be empty")
        self.name = name
        self._app = app
        self._retry = retry

    def register(
        self,
        *,
        name: str,
        retry: Retry | None = None,
        processing_deadline_duration: int = 10,
        expires: int | None = None,
        at_most_once: bool = False,
        dead_letter: bool = False,
    ) -> Callable[[Callable[_Parameters, _Result]], RegisteredTask[_Parameters, _Result]]:
        """Register a function, sync or async, as the task `name`.

        `retry` holds for the worker; the rest is for tasks that are made with `new`. Raises `ValueError` for a name
        that is registered already, and for a task that is to run at most once and has a retry policy.
        """
        policy = retry or self._retry
        if at_most_once and policy is not None and policy.attempts > 1:
            raise ValueError(f"register: name={name!r}: at_most_once=True has no retries: leave one of them out")

        def add(function: Callable[_Parameters, _Result]) -> RegisteredTask[_Parameters, _Result]:
            self._app.activity(name=name, namespace=self.name, retry=policy)(_handler(function))
            return RegisteredTask(
                self.name, name, function, policy, processing_deadline_duration, expires, at_most_once, dead_letter
            )

        return add


def _handler(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler that calls `function` with the arguments of a task, and returns nothing."""
    accepts = inspect.signature(function)

    def bound(request: TaskRequest) -> inspect.BoundArguments:
        try:
            args, kwargs = from_json(request.task.input)
            return accepts.bind(*args, **kwargs)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InputInvalidError(f"the task's arguments do not fit {function.__qualname__}: {error}") from None

    if inspect.iscoroutinefunction(function):

        async def run_async(request: TaskRequest) -> None:
            arguments = bound(request)
            await function(*arguments.args, **arguments.kwargs)

        return _named_like(function, run_async)

    def run(request: TaskRequest) -> None:
        arguments = bound(request)
        function(*arguments.args, **arguments.kwargs)

    return _named_like(function, run)


def _named_like(function: Callable[..., Any], handler: Callable[..., Any]) -> Callable[..., Any]:
    # Not functools.wraps: the signature that counts is the handler's.
    handler.__module__, handler.__name__ = function.__module__, function.__name__
    return handler
