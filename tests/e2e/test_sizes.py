"""The growth rules on a real cluster: a long task, a burst beside a busy worker, a bad node, a recommended size."""

import time

import pytest

from activity_worker.contract import LABEL_POOL
from tests.e2e.bad_node import bad_node
from tests.e2e.harness import CREDENTIALS, RESOURCES, SHORT, ClusterHarness
from tests.e2e.pool import UNHURRIED, a_pool
from tests.e2e.view import PoolView

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images

#: Seconds from the last of 64 tasks to 64 wanted workers: a few on a quiet machine. Without the operator's polls the
#: size is never reached, because only one worker can start.
BURST_SECONDS = 90.0


def replicas(view: PoolView) -> int:
    """Return the replicas of all Deployments of a pool."""
    return sum(found["spec"]["replicas"] for found in view.deployments)


def test_one_long_task_is_one_pod(harness: ClusterHarness, namespace: str) -> None:
    pool = a_pool(harness, namespace, "long", task=UNHURRIED, maxWorkers=4)
    pool.wait_until("Ready", "True")
    pool.executions.start(1, seconds=15)
    pool.wait_done()

    views = pool.since(0)
    assert pool.peak() == 1
    assert max(replicas(view) for view in views) == 1
    assert max(len(view.workers) for view in views) == 1
    pool.assert_nothing_lost()


def test_64_tasks_beside_a_busy_worker_count_while_no_pod_comes(harness: ClusterHarness, namespace: str) -> None:
    # The node has room for one worker of this pool, so no report of another one can tell of the tasks.
    term = {"labelSelector": {"matchLabels": {LABEL_POOL: "burst"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    worker = {"name": "worker", "env": CREDENTIALS, "resources": RESOURCES}
    template = {"spec": {"affinity": apart, "containers": [worker]}}
    pool = a_pool(harness, namespace, "burst", task=UNHURRIED, minWorkers=1, maxWorkers=64, podTemplate=template)
    pool.wait_ready(1)
    began = time.time()
    pool.executions.start(64, gated=True)
    arrived = time.time()

    mark = pool.mark
    wanted = pool.eventually("64 workers are wanted", lambda view: replicas(view) >= 64, since=mark)
    busy = pool.eventually("a worker is busy", lambda view: view.status.get("busyWorkers") == 1, since=mark)
    taken = wanted.moment.at - arrived
    print(f"64 wanted {taken:.1f} s after the last task and {wanted.moment.at - began:.1f} s after the first")
    assert taken < BURST_SECONDS
    assert max(replicas(view) for view in pool.since(0)) == 64
    assert len(busy.ready) == 1
    pool.let_go(busy.ready)


def test_growth_passes_a_bad_node_and_ready_names_its_pod(harness: ClusterHarness, namespace: str) -> None:
    def pods() -> set[str]:
        timeline = harness.timeline(namespace)
        return PoolView(timeline.since(timeline.mark())[0], "large").workers

    with bad_node(harness, namespace, pods) as (node, template):
        pool = a_pool(harness, namespace, "large", minWorkers=10, maxWorkers=20, podTemplate=template)
        pool.eventually("nine workers started beside a bad node", lambda view: len(view.ready) >= 9)
        pool.wait_until("Ready", "False", "WorkerCrashed")
        pool.change(minWorkers=12)
        grown = pool.eventually(
            "eleven workers are ready, and the pod on the bad node is not",
            lambda view: len(view.ready) >= 11 and view.says("Ready", "False", "WorkerCrashed"),
        )

    assert node.had
    assert not grown.ready & set(node.had)
    assert any(pod in grown.condition("Ready")["message"] for pod in node.had)
    assert max(len(view.workers) for view in pool.since(0)) <= 15


def test_recommended_size_is_shown_and_not_written(harness: ClusterHarness, namespace: str) -> None:
    pool = a_pool(harness, namespace, "advised", minWorkers=1, maxWorkers=4, activation={"mode": "None"})
    pool.wait_ready(1)
    pool.change(minWorkers=2, scaling={**SHORT, "mode": "Recommend"})
    shown = pool.eventually("two are recommended", lambda view: view.status.get("recommendedReplicas") == 2)

    assert "would set 2" in pool.wait_until("ScalingLimited", "True", "RecommendedOnly")
    assert pool.wait_event("SizeRecommended").startswith("would set 2 workers: ")
    assert shown.status["desiredReplicas"] == 1
    assert shown.says("Ready", "True")
    assert {replicas(view) for view in pool.since()} == {1}

    pool.change(scaling={"mode": None})
    pool.eventually("the size is written", lambda view: replicas(view) == 2)
    assert (
        "recommendedReplicas"
        not in pool.eventually(
            "the recommendation is gone", lambda view: "recommendedReplicas" not in view.status
        ).status
    )
