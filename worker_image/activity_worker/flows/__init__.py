"""Flows of Redis queues: make jobs, follow them, work on them in this process, look after lost locks.

The names below are loaded when they are first used, so that a command line that has nothing to do with Redis starts as
fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from activity_worker.flows.definition import FlowDefinition, FlowError, Queue
    from activity_worker.flows.flow import Flow
    from activity_worker.flows.job import Failure, Job, JobState
    from activity_worker.flows.monitor import LockMonitor, MonitorOptions
    from activity_worker.flows.workers import FlowWorkers

__all__ = [
    "Failure",
    "Flow",
    "FlowDefinition",
    "FlowError",
    "FlowWorkers",
    "Job",
    "JobState",
    "LockMonitor",
    "MonitorOptions",
    "Queue",
]

_NAMES_BY_MODULE = {
    "definition": ("FlowDefinition", "FlowError", "Queue"),
    "flow": ("Flow",),
    "job": ("Failure", "Job", "JobState"),
    "monitor": ("LockMonitor", "MonitorOptions"),
    "workers": ("FlowWorkers",),
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'activity_worker.flows' has no attribute {name!r}")
    return getattr(import_module(f"activity_worker.flows.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
