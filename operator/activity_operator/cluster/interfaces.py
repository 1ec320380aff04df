"""What the reconciler needs of the other rooms, as protocols: each can be replaced by a few lines in a test."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from activity_operator.api.spec import PoolSpec
from activity_operator.api.status import EventRecord
from activity_operator.cluster.resources import Key, Raw, Resource
from activity_operator.core.decision import Decision, ScalingMemory, SentinelOrder
from activity_operator.core.observation import Observation, PoolFacts, SourceFacts, WorkerFacts
from activity_worker.contract import Directive

#: (spec, observation, memory) -> what to do about one pool.
Decide = Callable[[PoolSpec, Observation, ScalingMemory], Decision]
#: (spec, pool, replicas) -> the Deployment of the spec's revision, as it is applied.
Render = Callable[[PoolSpec, PoolFacts, int], Mapping[str, Any]]
#: (spec, observation, decision, previous status, lifecycle events) -> the whole status.
BuildStatus = Callable[
    [PoolSpec, Observation, Decision, Mapping[str, Any] | None, Sequence[EventRecord]], Mapping[str, Any]
]


@dataclass(frozen=True, slots=True)
class CoreFunctions:
    """The pure core as the reconciler calls it."""

    decide: Decide
    render: Render
    status: BuildStatus


class PoolEventLike(Protocol):
    """One entry of a pool's story; times are Unix seconds, `exit_code` None but for an end that is known."""

    @property
    def name(self) -> str:
        """What happened."""
        ...

    @property
    def message(self) -> str:
        """What happened, in a sentence."""
        ...

    @property
    def count(self) -> int:
        """How often."""
        ...

    @property
    def at(self) -> float:
        """When last."""
        ...

    @property
    def pod(self) -> str:
        """To which pod last."""
        ...

    @property
    def exit_code(self) -> int | None:
        """How it ended."""
        ...


class WorkerReports(Protocol):
    """What workers said, and what they are answered."""

    def workers(self, namespace: str, pool: str) -> tuple[WorkerFacts, ...]:
        """Return the last word of each worker of the pool."""
        ...

    def set_directives(self, namespace: str, pool: str, directives: Mapping[str, Directive]) -> None:
        """Set what the pool's workers are told, by pod UID."""
        ...

    def report_path_problem(self, now: float) -> str:
        """Return why the report path itself is doubted, or ""."""
        ...

    @property
    def authentication_problem(self) -> str:
        """Why reports cannot be authenticated now, or ""."""
        ...

    def forget(self, pod_uid: str) -> None:
        """Drop a worker whose pod is gone."""
        ...

    def events(self, namespace: str, pool: str) -> Sequence[PoolEventLike]:
        """Return the story of the pool's workers, oldest first."""
        ...

    def add_event(
        self, key: Key, name: str, message: str, *, at: float, pod: str = "", exit_code: int | None = None
    ) -> None:
        """Add to that story what only the cluster sees."""
        ...

    def forget_pool(self, namespace: str, pool: str) -> None:
        """Drop what is kept of a pool that is gone."""
        ...


class PoolSourcesLike(Protocol):
    """The operator's own view of the task sources: sentinels and counts, and the leases they brought."""

    def order(self, key: Key, order: SentinelOrder, spec: PoolSpec, pool_uid: str) -> None:
        """Set how many polls are kept open for the pool."""
        ...

    def facts(self, key: Key) -> SourceFacts:
        """Return what is known of the pool's source."""
        ...

    def withdraw(self, key: Key, *, deleted: bool) -> None:
        """Open no more polls for the pool; when it is deleted, fail the leases that are held for it."""
        ...


class WatchCheck(Protocol):
    """Compares what the watches deliver with what is known of the cluster otherwise."""

    grace_seconds: float

    @property
    def next_check(self) -> float | None:
        """Seconds until a LIST could confirm that a watch is dead, None while every watch has delivered everything."""
        ...

    def wrote(self, resource: Resource, raw: Raw) -> None:
        """Take note of our own write: the watch must deliver this version."""
        ...

    def listed(self, resource: Resource, raws: list[Raw]) -> None:
        """Compare a LIST with what the watch delivered."""
        ...


class Leader(Protocol):
    """Whether this process may write now."""

    @property
    def leading(self) -> bool:
        """Whether the Lease is ours at this moment."""
        ...

    @property
    def led_since(self) -> float:
        """When that began, Unix seconds."""
        ...

    @property
    def reachable(self) -> bool:
        """Whether the API server answered last time."""
        ...
