"""Durable multi-step tasks: defined once, saved before every call, finished by whichever runner is alive."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from activity_worker.steps.cli.text import show
    from activity_worker.steps.model.definition_parser import DefinitionError
    from activity_worker.steps.model.errors import FinalError, StepError
    from activity_worker.steps.model.task import Task, step
    from activity_worker.steps.model.transitions import CannotRetryError, InstanceCompleteError
    from activity_worker.steps.runner.activity_handler import task_handler
    from activity_worker.steps.runner.invoke import Current, current
    from activity_worker.steps.runner.runner import Runner, RunnerOptions
    from activity_worker.steps.runner.tasks import (
        Created,
        InstanceConflictError,
        Tasks,
        UnknownTaskError,
        cancel,
        pause,
        resume,
        retry,
    )
    from activity_worker.steps.store.rows import StoredInstance
    from activity_worker.steps.store.task_store import InstanceLeaseLostError, TaskStore, UnknownInstanceError
    from activity_worker.wire.store_url import StoreUrlError

_NAMES_OF = {
    "activity_worker.steps.cli.text": ("show",),
    "activity_worker.steps.model.definition_parser": ("DefinitionError",),
    "activity_worker.steps.model.errors": ("FinalError", "StepError"),
    "activity_worker.steps.model.task": ("Task", "step"),
    "activity_worker.steps.model.transitions": ("CannotRetryError", "InstanceCompleteError"),
    "activity_worker.steps.runner.activity_handler": ("task_handler",),
    "activity_worker.steps.runner.invoke": ("Current", "current"),
    "activity_worker.steps.runner.runner": ("Runner", "RunnerOptions"),
    "activity_worker.steps.runner.tasks": (
        "Created",
        "InstanceConflictError",
        "Tasks",
        "UnknownTaskError",
        "cancel",
        "pause",
        "resume",
        "retry",
    ),
    "activity_worker.steps.store.rows": ("StoredInstance",),
    "activity_worker.steps.store.task_store": ("InstanceLeaseLostError", "TaskStore", "UnknownInstanceError"),
    "activity_worker.wire.store_url": ("StoreUrlError",),
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}

__all__ = [
    "CannotRetryError",
    "Created",
    "Current",
    "DefinitionError",
    "FinalError",
    "InstanceCompleteError",
    "InstanceConflictError",
    "InstanceLeaseLostError",
    "Runner",
    "RunnerOptions",
    "StepError",
    "StoreUrlError",
    "StoredInstance",
    "Task",
    "TaskStore",
    "Tasks",
    "UnknownInstanceError",
    "UnknownTaskError",
    "cancel",
    "current",
    "pause",
    "resume",
    "retry",
    "show",
    "step",
    "task_handler",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for only then: the command line looks in here, and starts without a database's library."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
