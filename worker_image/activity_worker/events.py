"""The fifteen lifecycle events: synchronous listeners, payloads typed by name.

An exception in a listener is logged and stops nothing. Listeners run in the event loop, in the order in which they were
added, and must be quick.
"""

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, overload

from activity_worker.contract import EventName, ExitOutput

if TYPE_CHECKING:
    from activity_worker.contract import LeasedTask
    from activity_worker.runtime.slot import Slot
    from activity_worker.task import TaskRequest, TaskResponse

_log = logging.getLogger(__name__)

_Worker = Literal[
    EventName.WORKER_STARTING, EventName.WORKER_RUNNING, EventName.WORKER_STOPPING, EventName.POLLING_STARTING
]
_Respond = Literal[EventName.TASK_SUCCESS, EventName.TASK_FAILURE]
_Request = Literal[EventName.TASK_START, EventName.TASK_HEARTBEAT]


@dataclass(frozen=True, slots=True)
class ReceivedTask:
    """A task and the worker that has it: the payload of `task:received` and `task:errored`."""

    worker: "Slot" = field(repr=False)
    task: "LeasedTask"


@dataclass(frozen=True, slots=True)
class PollingFailure:
    """The payload of `polling:error`: whether another poll follows, how many failed in a row, and the error."""

    retriable: bool
    attempts: int
    err: BaseException


Listener = Callable[..., object]


class EventEmitter:
    """Listeners by event name. One emitter may serve many workers: every payload names its own."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: dict[str, tuple[Listener, ...]] = {}

    @overload
    def on(self, name: _Worker, listener: Callable[["Slot"], object]) -> Callable[[], None]: ...
    @overload
    def on(
        self,
        name: Literal[EventName.WORKER_STOPPED],
        listener: Callable[["Slot", ExitOutput], object],
    ) -> Callable[[], None]: ...
    @overload
    def on(
        self,
        name: Literal[EventName.WORKER_ERROR],
        listener: Callable[["Slot", BaseException], object],
    ) -> Callable[[], None]: ...
    @overload
    def on(
        self,
        name: Literal[EventName.POLLING_SUCCESS],
        listener: Callable[["Slot", "LeasedTask | None"], object],
    ) -> Callable[[], None]: ...
    @overload
    def on(
        self,
        name: Literal[EventName.POLLING_ERROR],
        listener: Callable[["Slot", PollingFailure], object],
    ) -> Callable[[], None]: ...
    @overload
    def on(
        self, name: Literal[EventName.TASK_RECEIVED], listener: Callable[[ReceivedTask], object]
    ) -> Callable[[], None]: ...
    @overload
    def on(self, name: _Request, listener: Callable[["TaskRequest"], object]) -> Callable[[], None]: ...
    @overload
    def on(self, name: _Respond, listener: Callable[["TaskRequest", "TaskResponse"], object]) -> Callable[[], None]: ...
    @overload
    def on(
        self,
        name: Literal[EventName.TASK_ERRORED],
        listener: Callable[[ReceivedTask, BaseException], object],
    ) -> Callable[[], None]: ...
    @overload
    def on(
        self,
        name: Literal[EventName.TASK_DONE],
        listener: Callable[["TaskRequest", "TaskResponse | None"], object],
    ) -> Callable[[], None]: ...
    @overload
    def on(self, name: str, listener: Listener) -> Callable[[], None]: ...

    def on(self, name: str, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the event's payload from now on; returns a function that ends it.

        Raises `ValueError` for a name that is no event and `TypeError` for a coroutine function.
        """
        event = EventName(name)
        if inspect.iscoroutinefunction(listener):
            raise TypeError(f"{event}: a listener is called synchronously; {listener!r} is a coroutine function")
        self._listeners[event] = (*self._listeners.get(event, ()), listener)
        return lambda: self.off(event, listener)

    def off(self, name: str, listener: Listener) -> None:
        """Stop calling `listener`; one that is not there is fine."""
        kept = list(self._listeners.get(name, ()))
        if listener in kept:
            kept.remove(listener)
        self._listeners[name] = tuple(kept)

    def emit(self, name: EventName, *payload: Any) -> None:
        """Call the listeners of `name`, whatever they raise."""
        for listener in self._listeners.get(name, ()):
            try:
                listener(*payload)
            except Exception:  # noqa: BLE001 - whatever a listener does, the task goes on
                _log.exception("a listener of %s raised; the worker goes on", name.value)
