"""Short builders of a situation: a pool's spec, its pods, its workers' reports, and the time."""

from collections.abc import Iterable
from typing import Any

from activity_operator.api.spec import PoolSpec
from activity_operator.core.fleet import Fleet, Member, join_reports
from activity_operator.core.observation import BacklogCount, Observation, PodFacts, PoolFacts, WorkerFacts
from activity_worker.contract import WorkerState

#: The default time of an observation, long after the leader's term began.
NOW = 10_000.0
REVISION = "r1"
POOL = PoolFacts("team", "pool", "pool-uid", 1)


def pool(**more: Any) -> PoolSpec:
    """Return a spec with maxWorkers 10 and windows of 60 and 300 s, changed by `more` (names as in the resource)."""
    arn = "arn:aws:states:eu-west-1:123456789012:activity:a"
    scaling = {**window(60), **more.pop("scaling", {})}
    return PoolSpec.model_validate(
        {"activityArn": arn, "handlerImage": "i", "maxWorkers": 10, "scaling": scaling, **more}
    )


def window(seconds: int, zero_after: int = 300) -> dict[str, Any]:
    """Return `scaling` for `pool` with this stabilization window."""
    return {"scaleDown": {"stabilizationWindowSeconds": seconds, "zeroAfterSeconds": zero_after}}


def pod(name: str = "w1", **more: Any) -> PodFacts:
    """Return a pod whose worker runs and is ready; its UID is its name."""
    facts: dict[str, Any] = {
        "name": name,
        "uid": name,
        "revision": REVISION,
        "phase": "Running",
        "created": 1000.0,
        "ready": True,
        "ready_since": 1010.0,
        "running_since": 1005.0,
    }
    return PodFacts(**{**facts, **more})


def pending(name: str = "n1", **more: Any) -> PodFacts:
    """Return a pod that has not started: Pending, without a running container."""
    facts = {"phase": "Pending", "ready": False, "ready_since": 0.0, "running_since": 0.0, "created": NOW - 5}
    return pod(name, **{**facts, **more})


def worker(pod_uid: str = "w1", **more: Any) -> WorkerFacts:
    """Return a fresh report of an idle worker with one slot."""
    facts: dict[str, Any] = {
        "pod_uid": pod_uid,
        "incarnation": "i1",
        "state": WorkerState.RUNNING,
        "slots": 1,
        "busy": 0,
        "open_polls": 1,
        "idle_seconds": 30.0,
        "reported_at": NOW,
        "interval_seconds": 1.0,
    }
    return WorkerFacts(**{**facts, **more})


def busy(pod_uid: str = "w1", **more: Any) -> WorkerFacts:
    """Return a fresh report of a worker whose one slot has a task."""
    return worker(pod_uid, **{"busy": 1, "open_polls": 0, "idle_seconds": 0.0, **more})


def counted(tasks: int | None, *, exact: bool = True, age: float = 0.0, now: float = NOW) -> tuple[BacklogCount, ...]:
    """Return the signals of a source that counts `tasks` waiting tasks; none if `tasks` is None."""
    return () if tasks is None else (BacklogCount(tasks, exact, now - age),)


def observed(*facts: PodFacts | WorkerFacts, now: float = NOW, **more: Any) -> Observation:
    """Return an observation of these pods and reports. A report whose pod is not given gets a ready pod."""
    reports = tuple(fact for fact in facts if isinstance(fact, WorkerFacts))
    pods = tuple(fact for fact in facts if isinstance(fact, PodFacts))
    named = {one.uid for one in pods}
    pods += tuple(pod(report.pod_uid) for report in reports if report.pod_uid not in named)
    return Observation(**{"now": now, "pool": POOL, "pods": pods, "workers": reports, **more})


def fleet_of(observation: Observation, spec: PoolSpec | None = None) -> Fleet:
    """Return the fleet of an observation."""
    return join_reports(spec or pool(), observation)


def members(*facts: PodFacts | WorkerFacts, **more: Any) -> tuple[Member, ...]:
    """Return the members of the fleet that these facts make."""
    return fleet_of(observed(*facts, **more)).members


def names(chosen: Iterable[Member]) -> list[str]:
    """Return the members' pod names."""
    return [member.pod.name for member in chosen]
