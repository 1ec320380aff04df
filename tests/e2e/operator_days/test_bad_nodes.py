"""A node whose kubelet hangs: to Kubernetes all its pods are unready, but the workers work on, and none pays for it."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from activity_worker.contract import LABEL_POOL
from tests.cluster import Cluster, processes
from tests.cluster.kind import NAME
from tests.cluster.shell import run
from tests.e2e.operator_days import node
from tests.e2e.operator_days.operator import Operator
from tests.e2e.pool import UNHURRIED, Pool, a_pool
from tests.e2e.stage import SYSTEM, Stage, wait_for
from tests.readiness import is_ready

pytestmark = pytest.mark.timeout(1800)

#: Seconds until the node must be missed (node-monitor-grace-period, 50 by default), and until it must be well again.
MISSED_SECONDS, WELL_SECONDS = 120.0, 240.0
#: Seconds for what the operator does or says, with the kubelet hung.
TOLD_SECONDS = 120.0
AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 2, "zeroAfterSeconds": 2}}
ALONE = {"mode": "None"}


def test_a_node_that_is_not_ready_costs_its_busy_workers_nothing(
    stage: Stage, operator: Operator, namespace: str
) -> None:
    common = {"scaling": AT_ONCE, "activation": ALONE}
    steady = a_pool(stage, namespace, "steady", task=UNHURRIED, minWorkers=4, maxWorkers=4, **common)
    evicted = a_pool(stage, namespace, "evicted", task=UNHURRIED, minWorkers=1, maxWorkers=1, **common)
    steady.wait_ready(4)
    evicted.wait_ready(1)
    steady.executions.start(3, gated=True)
    evicted.executions.start(1, gated=True)
    steady.wait_for("the operator knows of three busy workers", lambda: steady.status.get("busyWorkers") == 3)
    evicted.wait_running(1)
    idle = steady.workers() - {steady.worker_of(task) for task in steady.executions.arns()}
    workers = [pod["metadata"]["uid"] for pod in _pods(steady) + _pods(evicted)]

    with _hung_kubelet(stage.cluster):
        wait_for("no pod of the node is ready", lambda: not _ready(steady) + _ready(evicted), MISSED_SECONDS)
        before = _picture(steady)
        # What the taint manager does after a pod's tolerationSeconds, on a cluster that has other nodes.
        evicted.kubectl("delete", "pod", *evicted.workers(), "--wait=false")
        # activation.mode None allows no minWorkers of 0.
        steady.change(minWorkers=1, maxWorkers=3)
        wait_for("the idle worker is told to leave", lambda: steady.leaving(idle) == idle, TOLD_SECONDS)
        assert _busy_run_on(steady, evicted), "the tasks ended before the test had seen what it is about"
        assert _untouched(before, _picture(steady), but=idle), "a busy worker was touched"
        assert steady.status["busyWorkers"] == 3, "its workers report, ready or not"
        wait_for("the reports count as fresh", lambda: steady.says("SignalsStale", "False"), TOLD_SECONDS)
        assert _reports_arrive(stage), "the report Service leads to nobody, although a replica leads"
        assert (_replicas(steady) <= 4, _replicas(evicted)) == (True, 1)

        node.open_gates(stage.cluster, workers)
        for pool in (steady, evicted):
            wait_for(f"{pool.name}: all tasks end on the node that is not ready", pool.executions.all_succeeded, 120)
            pool.assert_nothing_lost()

    wait_for("the node is ready", lambda: _node_is_ready(stage), WELL_SECONDS)
    operator.settle()
    evicted.wait_ready(1, 240)
    for pool in (steady, evicted):
        told = [event["message"] for event in pool.status.get("events", [])]
        assert not [message for message in told if "its pod went" in message], told
        assert not pool.events("WorkerStalled") + pool.events("StalledWorkerDeleted")


@contextmanager
def _hung_kubelet(cluster: Cluster) -> Iterator[None]:
    """Stop the kubelet, and it alone: containers run on."""
    _signal_kubelet(cluster, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal_kubelet(cluster, signal.SIGCONT)


def _signal_kubelet(cluster: Cluster, number: signal.Signals) -> None:
    if cluster.kind == "kind":
        script = f"kill -s {number.name.removeprefix('SIG')} $(pidof kubelet)"
        run(["docker", "exec", f"{NAME}-control-plane", "sh", "-c", script], timeout_seconds=30)
    else:
        os.kill(processes.pid_of("kubelet"), number)


def _pods(pool: Pool) -> list[dict[str, Any]]:
    """Return its pods, those that are being deleted left out."""
    found = json.loads(pool.kubectl("get", "pods", "-l", f"{LABEL_POOL}={pool.name}", "-o", "json"))["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def _replicas(pool: Pool) -> int:
    return sum(deployment["spec"]["replicas"] for deployment in pool.deployments())


def _ready(pool: Pool) -> int:
    return sum(map(is_ready, _pods(pool)))


def _picture(pool: Pool) -> dict[str, Any]:
    """Return what nobody may touch in a busy worker's pod, by name."""
    return {
        pod["metadata"]["name"]: [
            pod["metadata"]["uid"],
            pod["metadata"].get("annotations", {}),
            [container["containerID"] for container in pod["status"].get("containerStatuses", [])],
        ]
        for pod in _pods(pool)
    }


def _untouched(before: dict[str, Any], after: dict[str, Any], but: set[str]) -> bool:
    """Whether all pods are what they were, but for the one that has nothing to do."""
    return len(but) == 1 and all(after.get(pod) == was for pod, was in before.items() if pod not in but)


def _busy_run_on(*pools: Pool) -> bool:
    return all(pool.executions.running() == len(pool.executions.arns()) for pool in pools)


def _reports_arrive(stage: Stage) -> bool:
    """Whether a worker that connects to the report Service now would be led to a replica."""
    words = ("get", "endpointslices", "-n", SYSTEM, "-l", "kubernetes.io/service-name=activity-operator-reports")
    slices = json.loads(stage.kubectl(*words, "-o", "json"))["items"]
    return any(end["conditions"]["ready"] for one in slices for end in one.get("endpoints") or ())


def _node_is_ready(stage: Stage) -> bool:
    return is_ready(json.loads(stage.kubectl("get", "nodes", "-o", "json"))["items"][0])
