"""Reports as workers send them, with defaults for every field."""

from dataclasses import replace
from typing import Any

from activity_worker.contract import LifecycleEvent, Report, WorkerState

PLAIN = Report(
    namespace="media",
    pool="resize",
    pod_name="resize-a",
    pod_uid="uid-a",
    incarnation="first",
    sequence=1,
    state=WorkerState.RUNNING,
    slots=2,
    busy=0,
)


def report(**changes: Any) -> Report:
    """Return a report of worker `uid-a` in pool media/resize with `changes`."""
    return replace(PLAIN, **changes)


def other(**changes: object) -> Report:
    """Return a report of worker `uid-b` in the same pool with `changes`."""
    return report(pod_uid="uid-b", pod_name="resize-b", incarnation="b-first", **changes)


def event(sequence: int, name: str = "worker:starting", message: str = "", at: float = 100.0) -> LifecycleEvent:
    """Return one lifecycle event."""
    return LifecycleEvent(sequence, name, at, message)
