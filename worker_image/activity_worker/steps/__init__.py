"""Durable multi-step tasks: defined once, saved before every call, finished by whichever runner is alive."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from activity_worker.steps.app import Tasks
    from activity_worker.steps.context import Current, current
    from activity_worker.steps.errors import FinalError, StepError
    from activity_worker.steps.handler import task_handler
    from activity_worker.steps.parse import DefinitionError
    from activity_worker.steps.runner import Runner, RunnerOptions
    from activity_worker.steps.store import TaskStore
    from activity_worker.steps.task import Task, step

__all__ = [
    "Current",
    "DefinitionError",
    "FinalError",
    "Runner",
    "RunnerOptions",
    "StepError",
    "Task",
    "TaskStore",
    "Tasks",
    "current",
    "step",
    "task_handler",
]

_HOMES = {
    "Current": "context",
    "DefinitionError": "parse",
    "FinalError": "errors",
    "Runner": "runner",
    "RunnerOptions": "runner",
    "StepError": "errors",
    "Task": "task",
    "TaskStore": "store",
    "Tasks": "app",
    "current": "context",
    "step": "task",
    "task_handler": "handler",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for only then: the command line looks in here, and starts without a database's library."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
