"""What a handler sees: its registry, the context, the request, the toolkit, and functions about the task that it runs.

    async def handle(job: Resize, ctx: Context) -> Resized: ...
    async def handle(request: TaskRequest): return {"size": len(request.input["text"])}
    async def handle(request, respond): await respond.success({"size": 3})

`info()`, `heartbeat()`, `cancelled()` and `draining()` are about the task that the calling handler runs, in coroutines
and threads.
"""

from typing import Any

from activity_worker.handlers.registry import Activities, Activity
from activity_worker.runtime.blocking import BlockingToolkit
from activity_worker.runtime.cancellation import CancellationSignal, CancelReason
from activity_worker.runtime.context import Context, current_context
from activity_worker.runtime.toolkit import Progress, TaskChannel, TaskResponseToolkit
from activity_worker.task import TaskRequest, TaskResponse, WorkerIdentity

__all__ = [
    "Activities",
    "Activity",
    "BlockingToolkit",
    "CancelReason",
    "CancellationSignal",
    "Context",
    "Progress",
    "TaskChannel",
    "TaskRequest",
    "TaskResponse",
    "TaskResponseToolkit",
    "WorkerIdentity",
    "cancelled",
    "draining",
    "heartbeat",
    "info",
]


def info() -> TaskRequest:
    """Return the request of the task that runs here; raises `RuntimeError` outside a handler."""
    return current_context().request


def heartbeat(details: Any = None) -> None:
    """Say that the task makes progress, without waiting; many calls become few heartbeats."""
    current_context().heartbeat(details)


def cancelled() -> bool:
    """Tell whether the task that runs here should end."""
    return current_context().cancelled()


def draining() -> bool:
    """Tell whether the worker takes no further task: it leaves the pool, is replaced, or stops.

    The task may go on, until the pool's `drain.timeoutSeconds` has passed. A long handler may save its state and end
    early instead. False again if the operator takes the drain back.
    """
    return current_context().draining()
