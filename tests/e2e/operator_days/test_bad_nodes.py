"""A node whose kubelet hangs: Kubernetes marks all its pods NotReady, while their workers work on."""

from typing import Any

import pytest

from tests.e2e.harness import ClusterHarness
from tests.e2e.operator_days import node
from tests.e2e.operator_days.busy_workers import AT_ONCE
from tests.e2e.operator_days.operator import Operator
from tests.e2e.pool import UNHURRIED, a_pool
from tests.e2e.timeline import Moment
from tests.e2e.view import PoolView

pytestmark = pytest.mark.timeout(1800)

ALONE = {"mode": "None"}


def test_unready_node_costs_its_busy_workers_nothing(
    harness: ClusterHarness, operator: Operator, namespace: str
) -> None:
    common: dict[str, Any] = {"task": UNHURRIED, "scaling": AT_ONCE, "activation": ALONE}
    steady = a_pool(harness, namespace, "steady", minWorkers=4, maxWorkers=4, **common)
    evicted = a_pool(harness, namespace, "evicted", minWorkers=1, maxWorkers=1, **common)
    pools = (steady, evicted)
    steady.wait_ready(4)
    evicted.wait_ready(1)
    uids = [pod["metadata"]["uid"] for pool in pools for pod in pool.now.pods]

    operator.act()
    with node.hung_kubelet(harness.cluster):
        hung = steady.timeline.catch_up()
        steady.executions.start(3, gated=True)
        evicted.executions.start(1, gated=True)
        steady.eventually("three workers are busy", lambda view: view.status.get("busyWorkers") == 3)
        evicted.eventually("its worker is busy", lambda view: view.status.get("busyWorkers") == 1)
        before = steady.now
        busy = {steady.worker_of(task) for task in steady.tasks.arns()}
        idle = before.workers - busy
        assert (len(busy), len(idle)) == (3, 1)
        steady.timeline.eventually(
            "no pod is ready", lambda moment: not _ready(moment, "steady", "evicted"), since=hung
        )

        # On a cluster with other nodes, the taint manager does this after a pod's tolerationSeconds.
        evicted.kubectl("delete", "pod", *evicted.now.workers, "--wait=false")
        # activation.mode None allows no minWorkers of 0.
        steady.change(minWorkers=1, maxWorkers=3)
        steady.eventually("the idle worker is chosen to leave", lambda view: view.leaving(idle) == idle)
        steady.eventually(
            "the pool's reports are fresh",
            lambda view: view.says("SignalsStale", "False"),
            since=steady.timeline.catch_up(),
        )
        operator.eventually(
            "the report Service leads to a replica", lambda view: view.takes_reports, since=operator.timeline.catch_up()
        )
        for pool in pools:
            assert {attempt.ending for attempt in pool.tasks.attempts()} == {""}, "a task ended too soon"
        for view in steady.since(before.moment.number):
            assert _picture(view, of=busy) == _picture(before, of=busy), "a busy worker was touched"
            assert view.status["busyWorkers"] == 3, "its workers report, ready or not"
            assert _replicas(view) <= 4
            assert _replicas(evicted.view(view.moment)) == 1

        node.open_gates(harness.cluster, uids)
        for pool in pools:
            pool.wait_done()
            pool.assert_nothing_lost()

    operator.act()
    operator.eventually("every node is ready", lambda view: view.nodes_are_ready)
    evicted.wait_ready(1)
    operator.settle()
    for pool in pools:
        messages = {event["message"] for view in pool.since(0) for event in view.lifecycle}
        assert not [message for message in messages if "its pod went" in message], messages
        assert not pool.now.events("WorkerStalled") + pool.now.events("StalledWorkerDeleted")


def _ready(moment: Moment, *pools: str) -> set[str]:
    return {name for pool in pools for name in PoolView(moment, pool).ready}


def _replicas(view: PoolView) -> int:
    return sum(deployment["spec"]["replicas"] for deployment in view.deployments)


def _picture(view: PoolView, of: set[str]) -> dict[str, Any]:
    """Return what must not change in these workers of a pool, by name."""
    return {
        pod["metadata"]["name"]: [
            pod["metadata"]["uid"],
            pod["metadata"].get("annotations", {}),
            [container["containerID"] for container in pod["status"].get("containerStatuses", [])],
        ]
        for pod in view.pods
        if pod["metadata"]["name"] in of
    }
