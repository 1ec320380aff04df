"""PURE: the two lifecycles, each as one table.

A slot has a status:

    ready -> starting -> running -> stopping -> stopped -> starting -> ...
                  \\________________^

A worker (one pod) has a state. Cordoned it drains, and until it is drained that can be taken back:

    starting -> running <-> draining -> drained
        \\___________\\__________\\__________\\____> stopping -> stopped
"""

from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeVar

from activity_worker.contract import WorkerState


class SlotStatus(StrEnum):
    """The status of a `Slot`, and of a pool of them."""

    #: New: never started.
    READY = "ready"
    #: `start()` was called; the runner is being made ready.
    STARTING = "starting"
    #: Polls and runs tasks.
    RUNNING = "running"
    #: Starts no new poll; what is under way is being finished.
    STOPPING = "stopping"
    #: Nothing is under way; `exit_output` says how it ended. May be started again.
    STOPPED = "stopped"


class LifecycleError(RuntimeError):
    """The step is not in the table."""


_Status = TypeVar("_Status", SlotStatus, WorkerState)

STATUS_STEPS: Final = MappingProxyType(
    {
        SlotStatus.READY: frozenset({SlotStatus.STARTING}),
        SlotStatus.STARTING: frozenset({SlotStatus.RUNNING, SlotStatus.STOPPING}),
        SlotStatus.RUNNING: frozenset({SlotStatus.STOPPING}),
        SlotStatus.STOPPING: frozenset({SlotStatus.STOPPED}),
        SlotStatus.STOPPED: frozenset({SlotStatus.STARTING}),
    }
)

STATE_STEPS: Final = MappingProxyType(
    {
        WorkerState.STARTING: frozenset({WorkerState.RUNNING, WorkerState.DRAINING, WorkerState.STOPPING}),
        WorkerState.RUNNING: frozenset({WorkerState.DRAINING, WorkerState.STOPPING}),
        WorkerState.DRAINING: frozenset({WorkerState.RUNNING, WorkerState.DRAINED, WorkerState.STOPPING}),
        WorkerState.DRAINED: frozenset({WorkerState.STOPPING}),
        WorkerState.STOPPING: frozenset({WorkerState.STOPPED}),
        WorkerState.STOPPED: frozenset[WorkerState](),
    }
)


def may_step(current: _Status, to: _Status) -> bool:
    """Tell whether the table has the step."""
    if isinstance(current, SlotStatus):
        return to in STATUS_STEPS[current]
    return to in STATE_STEPS[current]


def step(current: _Status, to: _Status) -> _Status:
    """Return `to`; raises `LifecycleError` when the table does not have the step."""
    if not may_step(current, to):
        raise LifecycleError(f"a worker that is {current} cannot become {to}")
    return to
