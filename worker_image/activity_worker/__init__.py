"""The worker runtime: it polls a task source, runs your handler, heartbeats and concludes the task.

The names below are loaded when they are first used, so that `activity_worker.contract` costs nothing but itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from activity_worker import activity
    from activity_worker.activity import TaskRequest, TaskResponse, TaskResponseToolkit
    from activity_worker.cancellation import CancellationSignal, CancelReason
    from activity_worker.consumer import ActivityConsumer
    from activity_worker.contract import EventName, ExitOutput
    from activity_worker.errors import (
        InvalidTaskInputError,
        NoResponseSentError,
        ResponseAlreadySentError,
        TaskFailed,
    )
    from activity_worker.events import EventEmitter
    from activity_worker.lifecycle import WorkerStatus
    from activity_worker.options import TaskOptions
    from activity_worker.polling import Polling
    from activity_worker.pool import PoolManager
    from activity_worker.sources.memory import MemorySource
    from activity_worker.sources.protocol import Source, Task
    from activity_worker.sources.stepfunctions import StepFunctionsSource
    from activity_worker.worker import ActivityWorker

__all__ = [
    "ActivityConsumer",
    "ActivityWorker",
    "CancelReason",
    "CancellationSignal",
    "EventEmitter",
    "EventName",
    "ExitOutput",
    "InvalidTaskInputError",
    "MemorySource",
    "NoResponseSentError",
    "Polling",
    "PoolManager",
    "ResponseAlreadySentError",
    "Source",
    "StepFunctionsSource",
    "Task",
    "TaskFailed",
    "TaskOptions",
    "TaskRequest",
    "TaskResponse",
    "TaskResponseToolkit",
    "WorkerStatus",
    "activity",
]

_HOMES = {
    "activity": ("TaskRequest", "TaskResponse", "TaskResponseToolkit"),
    "cancellation": ("CancelReason", "CancellationSignal"),
    "consumer": ("ActivityConsumer",),
    "contract": ("EventName", "ExitOutput"),
    "errors": ("InvalidTaskInputError", "NoResponseSentError", "ResponseAlreadySentError", "TaskFailed"),
    "events": ("EventEmitter",),
    "lifecycle": ("WorkerStatus",),
    "options": ("TaskOptions",),
    "polling": ("Polling",),
    "pool": ("PoolManager",),
    "sources.memory": ("MemorySource",),
    "sources.protocol": ("Source", "Task"),
    "sources.stepfunctions": ("StepFunctionsSource",),
    "worker": ("ActivityWorker",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "activity":
        return import_module("activity_worker.activity")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'activity_worker' has no attribute {name!r}")
    return getattr(import_module(f"activity_worker.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
