"""How a handler is run: the protocol of a slot's runner, and the runner that does it in this process."""

import functools
import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

from activity_worker.errors import HandlerSignatureError
from activity_worker.runtime.blocking import BlockingToolkit, HandlerThread
from activity_worker.runtime.context import enter, leave
from activity_worker.runtime.toolkit import TaskResponseToolkit
from activity_worker.task import TaskRequest

Handler = Callable[..., Any]


class HandlerForm(StrEnum):
    """How a handler answers."""

    #: `handler(request)`: the return value is the output, an exception is a failure.
    RETURNS = "returns"
    #: `handler(request, respond)`: it answers through the toolkit.
    RESPONDS = "responds"


class HandlerRunner(Protocol):
    """Runs a slot's handler, one task at a time."""

    async def start(self) -> None:
        """Make ready. Raises when the handler cannot be used; called again after a `stop`."""
        ...

    async def run(self, request: TaskRequest, respond: TaskResponseToolkit) -> None:
        """Run the handler; raises what it raised. Conclusions go through `respond`. Cancelled: make the handler end."""
        ...

    async def stop(self) -> None:
        """Free what `start` took."""
        ...


def handler_form(handler: Handler) -> HandlerForm:
    """Tell by its parameters how a handler answers; raises `HandlerSignatureError`.

    One required parameter means `handler(request)`; two, or `*args`, mean `handler(request, respond)`.
    """
    name = getattr(handler, "__qualname__", repr(handler))
    if not callable(handler) or inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise HandlerSignatureError(f"{name}: expected a function or a coroutine function")
    try:
        parameters = inspect.signature(handler).parameters.values()
    except ValueError as error:
        raise HandlerSignatureError(f"{name}: its parameters cannot be read; wrap it in a function") from error
    kinds = inspect.Parameter
    required = [p for p in parameters if p.default is kinds.empty]
    if any(p.kind is kinds.KEYWORD_ONLY for p in required):
        raise HandlerSignatureError(f"{name}: keyword-only parameters need defaults")
    count = sum(p.kind in {kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD} for p in required)
    optional = sum(p.kind in {kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD} for p in parameters) - count
    if count == 1 or (count == 0 and optional):
        return HandlerForm.RETURNS
    if count == 2 or (count == 0 and any(p.kind is kinds.VAR_POSITIONAL for p in parameters)):
        return HandlerForm.RESPONDS
    raise HandlerSignatureError(f"{name}: expected (request) or (request, respond), found {count} parameters")


def is_async(handler: Handler) -> bool:
    """Tell whether calling the handler gives a coroutine."""
    if isinstance(handler, functools.partial):
        return is_async(handler.func)
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


class InlineRunner:
    """Runs the handler in this process: a coroutine function in the event loop, a plain function in a thread.

    A cancelled coroutine gets `CancelledError`. A thread cannot be interrupted: it has to look at the signal, and the
    slot is taken until it returns. Where that is not enough, run handlers in child processes.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._responds = handler_form(handler) is HandlerForm.RESPONDS
        self._async = is_async(handler)
        self._thread: HandlerThread | None = None

    async def start(self) -> None:
        """Start the thread that a plain function needs."""
        if not self._async:
            self._thread = HandlerThread()

    async def run(self, request: TaskRequest, respond: TaskResponseToolkit) -> None:
        """Run the handler and, in its one-parameter form, answer with what it returned."""
        token = enter(_Context(request, respond))
        try:
            if not self._async:
                await self._run_in_thread(request, respond)
            elif self._responds:
                await self._handler(request, respond)
            else:
                await respond.success(await self._handler(request))
        finally:
            leave(token)

    async def stop(self) -> None:
        """Let the thread end."""
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    async def _run_in_thread(self, request: TaskRequest, respond: TaskResponseToolkit) -> None:
        if self._thread is None:
            self._thread = HandlerThread()
        if self._responds:
            call = functools.partial(self._handler, request, BlockingToolkit(respond))
        else:
            call = functools.partial(self._handler, request)
        result = await self._thread.run(call, respond.signal)
        if inspect.isawaitable(result):
            result = await result
        if not self._responds:
            await respond.success(result)


class _Context:
    __slots__ = ("heartbeat_soon", "request", "signal")

    def __init__(self, request: TaskRequest, respond: TaskResponseToolkit) -> None:
        self.request = request
        self.signal = respond.signal
        self.heartbeat_soon = respond.heartbeat_soon
