"""How a run ended: what must be equal with and without faults, and what must never happen."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from activity_worker.contract import lease_id
from tests.faults.calls import WORKER
from tests.faults.harness import HOLD_SECONDS, FaultHarness
from tests.readiness import is_ready

#: Seconds within which a task from a poll must be recorded, on a slow machine.
RECORDED_SECONDS = 3.0

State = dict[str, Any]
_NUMBERS = ("observedGeneration", "replicas", "readyReplicas", "desiredReplicas", "busyWorkers", "provenRevision")


@dataclass(frozen=True, slots=True)
class Harm:
    """Harm to tasks and workers.

    `retried` counts attempts that no process of ours held; the service's Retry repeats them.
    """

    lost: int = 0
    interrupted: int = 0
    duplicates: int = 0
    retried: int = 0
    words: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Whether anything happened that must not happen."""
        return bool(self.lost or self.interrupted or self.duplicates)


async def end_state(harness: FaultHarness) -> State:
    """Return the state that is compared: without times, history, and generated names."""
    pool = await harness.pool()
    pods = await harness.pods()
    return {
        "deployments": {raw["metadata"]["name"]: _deployment(raw) for raw in await harness.deployments()},
        "pods": dict(Counter(_pod(raw) for raw in pods)),
        "status": None if pool is None else _status(pool.get("status") or {}),
        "leases": len(await harness.records()),
        "executions": harness.outcomes(),
        "busy": len(harness.kubelet.busy()),
    }


def _deployment(raw: Mapping[str, Any]) -> Any:
    spec = json.dumps(raw["spec"] | {"replicas": None}, sort_keys=True)
    # The Service's port differs in each run.
    port = raw["spec"]["template"]["spec"]["containers"][0]["env"]
    url = next((entry["value"] for entry in port if entry["name"] == "ACTIVITY_REPORT_URL"), "-")
    namespace = raw["metadata"]["namespace"].partition("-")[2]
    spec = spec.replace(url, "URL").replace(namespace, "N")
    return [raw["spec"]["replicas"], hashlib.sha256(spec.encode()).hexdigest()[:12]]


def _pod(raw: Mapping[str, Any]) -> str:
    cost = (raw["metadata"].get("annotations") or {}).get("controller.kubernetes.io/pod-deletion-cost", "")
    leaving = "leaving" if "deletionTimestamp" in raw["metadata"] else ""
    return " ".join(filter(None, (raw["status"]["phase"], "ready" if is_ready(raw) else "unready", cost, leaving)))


def _status(status: Mapping[str, Any]) -> State:
    conditions = sorted((c["type"], c["status"], c["reason"]) for c in status.get("conditions") or ())
    return {name: status.get(name) for name in _NUMBERS} | {"conditions": [list(condition) for condition in conditions]}


def _had(harness: FaultHarness, lease: str) -> bool:
    """Whether a task was recorded or begun, or was handed to a worker, or to an operator long enough before its end.

    A frozen operator has ended in this sense: it can record no task that it has just got.
    """
    if lease in harness.recorded or harness.ran[lease]:
        return True
    if lease not in harness.handed:
        return False
    caller, at = harness.handed[lease]
    if caller == WORKER:
        return True
    replica = harness.replica(caller)
    # The service holds a poll open for HOLD_SECONDS, also after its process has ended.
    return not any(-2 * HOLD_SECONDS <= end - at <= RECORDED_SECONDS for end in (*replica.ends, *replica.freezes))


def harm(harness: FaultHarness) -> Harm:
    """Return the harm to tasks and workers, as the task service and the node counted it."""
    words = list(harness.kubelet.interrupted)
    timed_out = [task for task in harness.tasks() if task.state == "timed_out"]
    lost = [task for task in timed_out if _had(harness, lease_id(task.token))]
    words += [f"task {lease_id(task.token)[:8]} was in safe hands, and timed out ({task.error})" for task in lost]
    twice = [lease for lease, times in harness.ran.items() if times > 1]
    words += [f"task {lease[:8]} was run {harness.ran[lease]} times" for lease in twice]
    # The service accepts one conclusion of each attempt; an execution needs one in all.
    again = max(sum(task.conclusions for task in harness.tasks()) - len(harness.executions), 0)
    words += [f"{again} tasks were concluded again"] * bool(again)
    duplicates = len(twice) + again
    return Harm(len(lost), len(harness.kubelet.interrupted), duplicates, len(timed_out) - len(lost), tuple(words))
