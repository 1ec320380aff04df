"""How a handler is run: the protocol of a slot's runner, and the runner that does it in this process."""

import inspect
from collections.abc import Callable
from typing import Any, Protocol

from activity_worker.handlers.registry import NO_RESOURCES, Activities, CompiledHandler, HandlerTable
from activity_worker.handlers.signature import Handler
from activity_worker.runtime.blocking import BlockingToolkit, HandlerThread
from activity_worker.runtime.cancellation import CancellationSignal
from activity_worker.runtime.context import Context, enter, leave
from activity_worker.runtime.toolkit import TaskResponseToolkit
from activity_worker.task import TaskRequest

__all__ = ["Handler", "HandlerRunner", "InlineRunner"]


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


class InlineRunner:
    """Runs handlers in this process: a coroutine function in the event loop, a plain function in a thread.

    A cancelled coroutine gets `CancelledError`. A thread cannot be interrupted: it has to look at the signal, and the
    slot is taken until it returns. Where that is not enough, run handlers in child processes.
    """

    def __init__(self, handler: Activities | Handler) -> None:
        """Read the signatures; raises `HandlerSignatureError`."""
        self._table = HandlerTable(handler)
        self._has_plain = any(not one.signature.is_async for one in self._table)
        self._thread: HandlerThread | None = None

    async def start(self) -> None:
        """Start the thread that plain functions need."""
        if self._has_plain:
            self._thread = HandlerThread()

    def find(self, request: TaskRequest) -> CompiledHandler:
        """Return the handler of a task; raises `UnknownActivityError`."""
        scheduled = request.task.activity
        if scheduled is None:
            return self._table.find(request.worker.activity_arn)
        return self._table.find(request.worker.activity_arn, scheduled.name, scheduled.version)

    async def run(self, request: TaskRequest, respond: TaskResponseToolkit) -> None:
        """Run the task's handler and, unless it answers through the toolkit, answer with what it returned."""
        context = Context(request, respond)
        token = enter(context)
        try:
            handler = self.find(request)
            signature = handler.signature
            blocking = signature.responds and not signature.is_async
            toolkit = BlockingToolkit(respond) if blocking else respond
            call = handler.prepare(request, toolkit, context, NO_RESOURCES)
            result = await (call() if signature.is_async else self._run_in_thread(call, respond.signal))
            if not signature.responds:
                await respond.success(result)
        finally:
            leave(token)

    async def stop(self) -> None:
        """Let the thread end."""
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    async def _run_in_thread(self, call: Callable[[], Any], signal: CancellationSignal) -> Any:
        if self._thread is None:
            self._thread = HandlerThread()
        result = await self._thread.run(call, signal)
        return await result if inspect.isawaitable(result) else result
