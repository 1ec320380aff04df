"""The worker runtime: it polls a task source, runs your handler, heartbeats and concludes the task.

The names below are loaded when they are first used, so that `activity_worker.contract` costs nothing but itself.

Three names are aliases, for people who know the activity consumer that this runtime is modelled on: `ActivityWorker` is
`Slot`, `PoolManager` is `SlotPool`, `WorkerStatus` is `SlotStatus`. Nothing else in this project uses them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from activity_worker import activity
    from activity_worker.activity import Activities, Context, TaskRequest, TaskResponse, TaskResponseToolkit
    from activity_worker.conclusion import Conclusions
    from activity_worker.contract import EventName, ExitOutput, LeasedTask
    from activity_worker.errors import (
        ConcludeLater,
        InputInvalidError,
        InvalidTaskInputError,
        NoResponseSentError,
        ResponseAlreadySentError,
        RetryTask,
        TaskCancelled,
        TaskFailed,
    )
    from activity_worker.events import EventEmitter
    from activity_worker.handlers.retry import Retry
    from activity_worker.handlers.task_namespace import RegisteredTask, TaskNamespace
    from activity_worker.runtime.cancellation import CancellationSignal, CancelReason
    from activity_worker.runtime.consumer import ActivityConsumer
    from activity_worker.runtime.lifecycle import SlotStatus
    from activity_worker.runtime.options import Polling, TaskOptions
    from activity_worker.runtime.slot import Slot
    from activity_worker.runtime.slot_pool import SlotPool
    from activity_worker.sources.memory import MemorySource
    from activity_worker.sources.protocol import Source
    from activity_worker.sources.stepfunctions import StepFunctionsSource
    from activity_worker.sources.swf import SwfSource

    ActivityWorker = Slot
    PoolManager = SlotPool
    WorkerStatus = SlotStatus

__all__ = [
    "Activities",
    "ActivityConsumer",
    "ActivityWorker",
    "CancelReason",
    "CancellationSignal",
    "ConcludeLater",
    "Conclusions",
    "Context",
    "EventEmitter",
    "EventName",
    "ExitOutput",
    "InputInvalidError",
    "InvalidTaskInputError",
    "LeasedTask",
    "MemorySource",
    "NoResponseSentError",
    "Polling",
    "PoolManager",
    "RegisteredTask",
    "ResponseAlreadySentError",
    "Retry",
    "RetryTask",
    "Slot",
    "SlotPool",
    "SlotStatus",
    "Source",
    "StepFunctionsSource",
    "SwfSource",
    "TaskCancelled",
    "TaskFailed",
    "TaskNamespace",
    "TaskOptions",
    "TaskRequest",
    "TaskResponse",
    "TaskResponseToolkit",
    "WorkerStatus",
    "activity",
]

_NAMES_BY_MODULE = {
    "activity": ("Activities", "Context", "TaskRequest", "TaskResponse", "TaskResponseToolkit"),
    "conclusion": ("Conclusions",),
    "contract": ("EventName", "ExitOutput", "LeasedTask"),
    "errors": (
        "ConcludeLater",
        "InputInvalidError",
        "InvalidTaskInputError",
        "NoResponseSentError",
        "ResponseAlreadySentError",
        "RetryTask",
        "TaskCancelled",
        "TaskFailed",
    ),
    "events": ("EventEmitter",),
    "handlers.retry": ("Retry",),
    "handlers.task_namespace": ("RegisteredTask", "TaskNamespace"),
    "runtime.cancellation": ("CancelReason", "CancellationSignal"),
    "runtime.consumer": ("ActivityConsumer",),
    "runtime.lifecycle": ("SlotStatus",),
    "runtime.options": ("Polling", "TaskOptions"),
    "runtime.slot": ("Slot",),
    "runtime.slot_pool": ("SlotPool",),
    "sources.memory": ("MemorySource",),
    "sources.protocol": ("Source",),
    "sources.stepfunctions": ("StepFunctionsSource",),
    "sources.swf": ("SwfSource",),
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}
_ALIASES = {"ActivityWorker": "Slot", "PoolManager": "SlotPool", "WorkerStatus": "SlotStatus"}


def __getattr__(name: str) -> Any:
    if name == "activity":
        return import_module("activity_worker.activity")
    original = _ALIASES.get(name, name)
    module = _MODULE_OF.get(original)
    if module is None:
        raise AttributeError(f"module 'activity_worker' has no attribute {name!r}")
    return getattr(import_module(f"activity_worker.{module}"), original)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
