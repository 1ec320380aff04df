"""Runs a slot's handler in this process."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from activity_worker.handlers.registry import Activities
from activity_worker.handlers.signature import Handler
from activity_worker.handlers.table import NO_RESOURCES, CompiledHandler, HandlerTable
from activity_worker.runtime.blocking import BlockingToolkit, HandlerThread
from activity_worker.runtime.call_chain import call_through
from activity_worker.runtime.cancellation import CancellationSignal
from activity_worker.runtime.context import Context, enter, leave
from activity_worker.runtime.lifespan import Lifespan
from activity_worker.runtime.toolkit import TaskResponseToolkit
from activity_worker.task import TaskRequest


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
        self._lifespan = Lifespan(self._table, self._where_plain_handlers_run)

    @property
    def activities(self) -> list[tuple[str, str]]:
        """Name and version of the activities in a registry; a plain function has none."""
        return [(one.name, one.version) for one in self._table.named]

    async def start(self) -> None:
        """Start the thread that plain functions need, and open the resources; raises `ResourceError`."""
        if self._has_plain and self._thread is None:
            self._thread = HandlerThread()
        await self._lifespan.open()

    def find(self, request: TaskRequest) -> CompiledHandler:
        """Return the handler of a task; raises `UnknownActivityError`."""
        scheduled = request.task.activity
        if scheduled is None:
            return self._table.find(request.worker.activity_arn)
        return self._table.find(request.worker.activity_arn, scheduled.name, scheduled.version, scheduled.namespace)

    async def run(self, request: TaskRequest, respond: TaskResponseToolkit) -> None:
        """Run the task's handler and, unless it answers through the toolkit, answer with what it returned."""
        context = Context(request, respond)
        token = enter(context)
        try:
            handler = self.find(request)
            policy = handler.activity.retry
            respond.retry_terms = None if policy is None else policy.terms
            signature = handler.signature
            blocking = signature.responds and not signature.is_async
            toolkit = BlockingToolkit(respond) if blocking else respond
            resources = self._lifespan.resources
            if resources is None:
                resources = await self._open_late()

            async def called() -> Any:
                call = handler.prepare(request, toolkit, context, resources)
                return await (call() if signature.is_async else self._run_in_thread(call, respond.signal))

            around = [(one.name, one.call(resources, context)) for one in self._table.middlewares]
            respond.handler_has_started = _begun
            try:
                result = await (call_through(around, called) if around else called())
            except BaseException as error:
                respond.retry_wanted = None if policy is None else policy.takes(error)
                raise
            finally:
                respond.handler_ended = True
            if not signature.responds:
                await respond.success(result)
        finally:
            leave(token)

    async def stop(self) -> None:
        """Close the resources and let the thread end."""
        await self._lifespan.close()
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    async def _open_late(self) -> Mapping[str, Any]:
        await self.start()
        return self._lifespan.resources or NO_RESOURCES

    async def _where_plain_handlers_run(self, function: Callable[[], Any]) -> Any:
        return await self._run_in_thread(function, CancellationSignal()) if self._has_plain else function()

    async def _run_in_thread(self, call: Callable[[], Any], signal: CancellationSignal) -> Any:
        if self._thread is None:
            self._thread = HandlerThread()
        result = await self._thread.run(call, signal)
        return await result if inspect.isawaitable(result) else result


def _begun() -> bool:
    return True
