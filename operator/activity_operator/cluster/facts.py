"""Converts raw objects into the facts of an observation."""

from collections.abc import Mapping
from typing import Any

from activity_operator.api.pod_own import DELETION_COST
from activity_operator.api.times import from_rfc3339
from activity_operator.cluster import field_managers
from activity_operator.cluster.drift import drifted_fields, is_outdated
from activity_operator.cluster.resources import Raw
from activity_operator.core.manifests import GENERATION
from activity_operator.core.observation import DeploymentFacts, PodFacts, PoolFacts
from activity_worker.contract import LABEL_REVISION

#: Name of the container that runs the handler in each pod of a pool.
WORKER_CONTAINER = "worker"
#: The delay of a service's metrics in seconds: a decision may not know of tasks that arrived this shortly before it.
COUNTS_DELAY_SECONDS = 600.0


def seconds(text: Any) -> float:
    """Return an RFC 3339 time as Unix seconds, 0 for a missing or invalid one."""
    try:
        return from_rfc3339(text).timestamp() if isinstance(text, str) and text else 0.0
    except ValueError:
        return 0.0


def controller_uid(raw: Raw) -> str:
    """Return the UID of the object's controlling owner, "" without one."""
    owners = raw["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def pool_facts(raw: Raw) -> PoolFacts:
    """Return the facts of a pool."""
    meta = raw["metadata"]
    return PoolFacts(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        generation=int(meta.get("generation", 1)),
        deleting="deletionTimestamp" in meta,
        proven_revision=str((raw.get("status") or {}).get("provenRevision", "")),
        emptied_at=_emptied_at(raw.get("status") or {}),
        tasks_failing=_tasks_failing(raw.get("status") or {}),
        stopped_revision=str((raw.get("status") or {}).get("stoppedRevision", "")),
        desired=int((raw.get("status") or {}).get("desiredReplicas") or 0),
    )


def _tasks_failing(status: Mapping[str, Any]) -> str:
    conditions = status.get("conditions") or ()
    return next((str(one.get("message", "")) for one in conditions if one.get("type") == "TasksFailing"), "")


def _emptied_at(status: Mapping[str, Any]) -> float:
    """Return a time at which the pool had no work: some minutes before it scaled to zero for lack of demand, else 0.

    A new leader reads it from the former leader's status. Otherwise it would count tasks that were done long ago.
    """
    last: Mapping[str, Any] = (status.get("decisions") or ({},))[-1]
    idle = last.get("desired") == 0 and last.get("limit") == "demand"
    return seconds(last.get("at")) - COUNTS_DELAY_SECONDS if idle else 0.0


def deployment_facts(raw: Raw, manifest: Mapping[str, Any] | None = None) -> DeploymentFacts:
    """Return the facts of a revision's Deployment; `manifest` is the present rendering of the pool's revision."""
    outdated, edited = False, False
    if manifest is not None and manifest["metadata"]["name"] == raw["metadata"]["name"]:
        outdated = is_outdated(manifest, raw)
        edited = bool(drifted_fields(manifest, raw))
    meta = raw["metadata"]
    failed = _condition(raw, "ReplicaFailure")
    generation = (meta.get("annotations") or {}).get(GENERATION, "")
    return DeploymentFacts(
        name=meta["name"],
        uid=meta["uid"],
        resource_version=str(meta["resourceVersion"]),
        revision=(meta.get("labels") or {}).get(LABEL_REVISION, ""),
        rendered_generation=int(generation) if str(generation).isdigit() else 0,
        replicas=int((raw.get("spec") or {}).get("replicas", 1)),
        created=seconds(meta.get("creationTimestamp")),
        drifted=edited,
        outdated=outdated,
        deleting="deletionTimestamp" in meta,
        failure=str(failed.get("message", "")) if failed.get("status") == "True" else "",
        failure_reason=str(failed.get("reason", "")) if failed.get("status") == "True" else "",
        scaled_by=field_managers.last_scaler(raw),
        edited_by=field_managers.last_editor(raw),
    )


def pod_facts(raw: Raw) -> PodFacts:
    """Return the facts of a worker's pod."""
    meta, status = raw["metadata"], raw.get("status") or {}
    phase = str(status.get("phase", "Pending"))
    ready, scheduled = _condition(raw, "Ready"), _condition(raw, "PodScheduled")
    container = _worker(status)
    state = container.get("state") or {}
    waiting = state.get("waiting") or _init_trouble(status)
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
    is_ready = ready.get("status") == "True"
    stuck = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    return PodFacts(
        name=meta["name"],
        uid=meta["uid"],
        revision=(meta.get("labels") or {}).get(LABEL_REVISION, ""),
        phase=phase,
        created=seconds(meta.get("creationTimestamp")),
        assigned=bool((raw.get("spec") or {}).get("nodeName")),
        ready=is_ready,
        ready_since=seconds(ready.get("lastTransitionTime")) if is_ready else 0.0,
        running_since=seconds((state.get("running") or {}).get("startedAt")),
        restarts=int(container.get("restartCount", 0)),
        deletion_cost=_cost(meta),
        deleting="deletionTimestamp" in meta,
        waiting_reason=str(waiting.get("reason", "")),
        waiting_message=_why(waiting, ended),
        last_exit_code=ended.get("exitCode"),
        last_exit_reason=_exit_reason(phase, status, ended),
        unschedulable=str(scheduled.get("message", "")) if stuck else "",
        untaken_since=_untaken_since(raw, phase),
        unprepared_since=_unprepared_since(raw, phase),
        resource_version=str(meta["resourceVersion"]),
    )


def _condition(raw: Raw, kind: str) -> Mapping[str, Any]:
    found = (raw.get("status") or {}).get("conditions") or ()
    return next((condition for condition in found if condition.get("type") == kind), {})


def _worker(status: Mapping[str, Any]) -> Mapping[str, Any]:
    found = status.get("containerStatuses") or ()
    return next((container for container in found if container.get("name") == WORKER_CONTAINER), {})


def _init_trouble(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return why an init container waits: meanwhile the worker container only shows PodInitializing."""
    for container in status.get("initContainerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "PodInitializing"):
            return dict(waiting)
    return {}


def _why(waiting: Mapping[str, Any], ended: Mapping[str, Any]) -> str:
    """Return why the container waits; for a crash loop, the message of the last exit."""
    if waiting.get("reason") == "CrashLoopBackOff":
        return str(ended.get("message", ""))
    return str(waiting.get("message", ""))


def _untaken_since(raw: Raw, phase: str) -> float:
    """Return since when a scheduled pod waits for its kubelet, else 0; a kubelet first writes the startTime."""
    if phase != "Pending" or not (raw.get("spec") or {}).get("nodeName") or (raw.get("status") or {}).get("startTime"):
        return 0.0
    return seconds(_condition(raw, "PodScheduled").get("lastTransitionTime"))


def _unprepared_since(raw: Raw, phase: str) -> float:
    """Return since when a pod is not ready to start containers (sandbox, network, volumes), else 0."""
    prepared = _condition(raw, "PodReadyToStartContainers")
    waits = phase == "Pending" and prepared.get("status") == "False"
    return seconds(prepared.get("lastTransitionTime")) if waits else 0.0


def _exit_reason(phase: str, status: Mapping[str, Any], ended: Mapping[str, Any]) -> str:
    """Return why the container ended, or why the pod failed as a whole (Evicted, NodeLost)."""
    if phase == "Failed" and status.get("reason"):
        return str(status["reason"])
    return str(ended.get("reason", ""))


def _cost(meta: Mapping[str, Any]) -> int | None:
    text = (meta.get("annotations") or {}).get(DELETION_COST)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
