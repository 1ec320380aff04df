"""Durable multi-step tasks: defined once, saved before every call, finished by whichever runner is alive."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from activity_worker.steps.cli import show
    from activity_worker.steps.model.definition_parser import DefinitionError
    from activity_worker.steps.model.errors import FinalError, StepError
    from activity_worker.steps.model.task import Task, step
    from activity_worker.steps.runner.activity_handler import task_handler
    from activity_worker.steps.runner.invoke import Current, current
    from activity_worker.steps.runner.runner import Runner, RunnerOptions
    from activity_worker.steps.runner.tasks import Tasks
    from activity_worker.steps.store.task_store import TaskStore

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
    "show",
    "step",
    "task_handler",
]

_MODULE_OF = {
    "Current": "runner.invoke",
    "DefinitionError": "model.definition_parser",
    "FinalError": "model.errors",
    "Runner": "runner.runner",
    "RunnerOptions": "runner.runner",
    "StepError": "model.errors",
    "Task": "model.task",
    "TaskStore": "store.task_store",
    "Tasks": "runner.tasks",
    "current": "runner.invoke",
    "step": "model.task",
    "task_handler": "runner.activity_handler",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for only then: the command line looks in here, and starts without a database's library."""
    if name == "show":
        return importlib.import_module(f"{__name__}.cli.show")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
