"""Protocols through which the reconciler uses the other packages; a test can replace each by a few lines."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from activity_operator.api.spec import PoolSpec
from activity_operator.api.status import EventRecord
from activity_operator.cluster.resources import Key, Raw, Resource
from activity_operator.core.decision import Decision, ScalingMemory, SentinelOrder
from activity_operator.core.observation import Observation, PoolFacts, ReportPathFacts, SourceFacts, WorkerFacts
from activity_operator.core.task_window import TaskWindow
from activity_worker.contract import Directive

#: (spec, observation, memory) -> the decision about one pool.
Decide = Callable[[PoolSpec, Observation, ScalingMemory], Decision]
#: (spec, pool, replicas) -> the Deployment of the spec's revision, as the operator applies it.
Render = Callable[[PoolSpec, PoolFacts, int], Mapping[str, Any]]
#: (spec, observation, decision, previous status, lifecycle events) -> the whole status.
BuildStatus = Callable[
    [PoolSpec, Observation, Decision, Mapping[str, Any] | None, Sequence[EventRecord]], Mapping[str, Any]
]
#: (spec, observation, decision, previous status) -> what of the status must not wait, to compare with the last one.
UrgentPart = Callable[[PoolSpec, Observation, Decision, Mapping[str, Any] | None], tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class CoreFunctions:
    """The pure core as the reconciler calls it. Without `urgent_part` each reconciliation computes the status."""

    decide: Decide
    render: Render
    status: BuildStatus
    urgent_part: UrgentPart | None = None


class PoolEventLike(Protocol):
    """A lifecycle event of a pool's workers."""

    @property
    def name(self) -> str:
        """The event's name."""
        ...

    @property
    def message(self) -> str:
        """The event as a sentence."""
        ...

    @property
    def count(self) -> int:
        """How often the event occurred to its pod."""
        ...

    @property
    def at(self) -> float:
        """When it last occurred, Unix seconds."""
        ...

    @property
    def pod(self) -> str:
        """Name of the pod to which it occurred."""
        ...

    @property
    def exit_code(self) -> int | None:
        """Exit code of an ended worker; None for other events, and for an unknown code."""
        ...


class WorkerReportsView(Protocol):
    """The workers' reports, to read."""

    def workers(self, namespace: str, pool: str) -> tuple[WorkerFacts, ...]:
        """Return the facts of the last report of each worker of the pool."""
        ...

    def report_path(self, namespace: str, pool: str, now: float, deadline_seconds: float) -> ReportPathFacts:
        """Return whether the pool's report path may be broken; `deadline_seconds` is `stalled.deadlineSeconds`."""
        ...

    def tasks(self, namespace: str, pool: str, now: float) -> TaskWindow:
        """Return what the pool's workers did in the last minutes."""
        ...

    @property
    def authentication_problem(self) -> str:
        """Why reports cannot be authenticated now, or ""."""
        ...


class WorkerReports(WorkerReportsView, Protocol):
    """The workers' reports, the directives in the replies, and the lifecycle events."""

    def set_directives(self, namespace: str, pool: str, directives: Mapping[str, Directive]) -> None:
        """Set the directives for the pool's workers, by pod UID."""
        ...

    def end_stand_by(self, namespace: str, pool: str) -> None:
        """Let the pool's workers poll that stand by, because no decision follows soon."""
        ...

    def forget(self, pod_uid: str) -> None:
        """Forget a worker whose pod is gone."""
        ...

    def events(self, namespace: str, pool: str) -> Sequence[PoolEventLike]:
        """Return the lifecycle events of the pool's workers, oldest first."""
        ...

    def add_event(
        self, key: Key, name: str, message: str, *, at: float, pod: str = "", exit_code: int | None = None
    ) -> None:
        """Add a lifecycle event that only the cluster shows; `at` is Unix seconds."""
        ...

    def forget_pool(self, namespace: str, pool: str) -> None:
        """Forget a pool that is gone."""
        ...


class PoolSourcesView(Protocol):
    """The task sources, to read."""

    def facts(self, key: Key) -> SourceFacts:
        """Return the facts of the pool's source."""
        ...


class PoolSourcesLike(PoolSourcesView, Protocol):
    """The operator's access to the task sources: sentinels and counts, and the leases that the operator holds."""

    def order(self, key: Key, order: SentinelOrder, spec: PoolSpec, pool_uid: str) -> None:
        """Set how many polls are kept open for the pool, and whether its backlog is counted."""
        ...

    def stop_polls(self, key: Key) -> None:
        """Open no more polls for the pool until the next order; reads that take no task go on."""
        ...

    def withdraw(self, key: Key, *, deleted: bool) -> None:
        """Open no more polls for the pool and read no counts; if it is deleted, fail the operator's leases for it."""
        ...


class WatchCheck(Protocol):
    """Compares the events of the watches with the operator's writes and with LISTs."""

    grace_seconds: float

    @property
    def next_check(self) -> float | None:
        """Seconds until a LIST can prove a watch dead; None while no watch owes an event."""
        ...

    def wrote(self, resource: Resource, raw: Raw) -> None:
        """Record a write of the operator: the watch must deliver this version."""
        ...

    def forget(self, resource: Resource) -> None:
        """Forget what the watch owes: the API server's storage was restored, and those versions are gone."""
        ...

    def listed(self, resource: Resource, raws: list[Raw], list_version: str) -> None:
        """Compare a LIST with the events of the watch; `list_version` is the LIST's own resourceVersion."""
        ...


class Leader(Protocol):
    """The leadership of this process."""

    @property
    def leading(self) -> bool:
        """Whether this process may write now."""
        ...

    @property
    def led_since(self) -> float:
        """When the current term began, Unix seconds."""
        ...

    @property
    def reachable(self) -> bool:
        """Whether the API server handled the elector's last call."""
        ...
