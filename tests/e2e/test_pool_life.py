"""What people do to a pool: pause it, pin it, delete its pods, edit its Deployment, share its activity."""

import pytest

from tests.e2e.faults import term
from tests.e2e.harness import ClusterHarness
from tests.e2e.pool import UNHURRIED, Pool, a_pool
from tests.e2e.revised import UNPULLABLE
from tests.e2e.view import PoolView

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images

ALONE = {"mode": "None"}  # no sentinel: only workers poll


def test_paused_pool_finishes_takes_nothing_more_and_resumes(harness: ClusterHarness, namespace: str) -> None:
    # One worker only: the open poll of a second, idle one would still bring a task.
    worked = a_pool(harness, namespace, "worked", task=UNHURRIED, minWorkers=1, maxWorkers=1, activation=ALONE)
    holding = a_pool(harness, namespace, "holding", maxWorkers=2, handlerImage=UNPULLABLE)
    holding.executions.start(1, seconds=1)
    holding.wait_until("Ready", "False", "ImagePullFailed")
    worked.wait_ready(1)
    (running,) = worked.executions.start(1, gated=True)
    worked.wait_running(1)

    for pool in (worked, holding):
        pool.change(paused=True, handlerImage=harness.handler)
    for pool in (worked, holding):
        assert "workers finish what they hold and leave" in pool.wait_until("Paused", "True", "Paused")
    # The status shows the decision; the worker obeys it with the answer to its next report.
    worked.wait_reported("draining", 1)
    waiting = worked.executions.start(2, seconds=1)
    worked.let_go([worked.worker_of(running)])
    for pool in (worked, holding):
        pool.wait_empty()
    assert worked.executions.output(running)["pod"], "the running task did not finish"
    assert [attempt.worker for execution in waiting for attempt in worked.executions.attempts(execution)] == ["", ""]
    assert worked.now.says("Ready", "True", "Paused")
    assert holding.now.says("Active", "True", "TasksPresent")
    (held,) = holding.executions.attempts()
    assert (held.worker != "", held.ending) == (True, ""), "the lease that was held when the pause came is not kept"

    for pool in (worked, holding):
        pool.change(paused=None)
    for pool in (worked, holding):
        pool.wait_done()
        pool.assert_nothing_lost()
        pool.wait_until("Paused", "False")


def test_kubectl_scale_pins_a_pool_and_a_deleted_pod_is_replaced(harness: ClusterHarness, namespace: str) -> None:
    since = term(harness)
    pool = a_pool(harness, namespace, "pinned", task=UNHURRIED, minWorkers=1, maxWorkers=3, activation=ALONE)
    pool.wait_ready(1)
    pool.kubectl("scale", "apool", "pinned", "--replicas=5")
    assert pool.wait_until("Pinned", "True", "ReplicasSet") == "spec.replicas is 5"
    assert pool.wait_until("ScalingLimited", "True", "AtMaxWorkers") == "spec.replicas pins 5; maxWorkers is 3"
    pool.wait_ready(3)

    running = pool.executions.start(3, gated=True)
    pool.wait_running(3)
    workers = pool.now.workers
    victim = min(workers)
    pool.kubectl("delete", "pod", victim, "--wait=false")
    pool.eventually("the deleted pod is replaced", lambda view: victim not in view.workers and len(view.workers) == 3)
    pool.let_go(workers)
    pool.wait_done()
    assert victim in pool.pods_of(running), "the deleted pod's worker did not finish its task"
    # A later leader does not know of ends that only the former leader had seen.
    pool.eventually(
        "the end of the deleted worker is reported",
        lambda view: "worker:stopped" in events_of(view, victim) or term(harness) != since,
    )
    pool.kubectl("scale", "apool", "pinned", "--replicas=0")
    pool.wait_empty()
    waiting = pool.executions.start(2, seconds=1)

    pool.change(replicas=None)
    pool.wait_until("Pinned", "False", "ReplicasUnset")
    pool.wait_done()
    pool.assert_nothing_lost()
    assert victim not in pool.pods_of(waiting)


def test_two_pools_on_one_activity_report_that_and_share_its_tasks(harness: ClusterHarness, namespace: str) -> None:
    left = a_pool(harness, namespace, "left", task=UNHURRIED, minWorkers=1, maxWorkers=1, activation=ALONE)
    right = Pool(harness, namespace, "right", left.tasks)
    right.apply(minWorkers=1, maxWorkers=1, activation=ALONE)
    for pool, other in ((left, right), (right, left)):
        pool.wait_ready(1)
        assert f"also polled for by {namespace}/{other.name}" in pool.wait_event("ActivityShared")
    both = left.executions.start(2, gated=True)
    left.wait_running(2)
    for pool in (left, right):
        pool.let_go(pool.now.workers)
    left.wait_done()
    assert len({pod.split("-")[0] for pod in left.pods_of(both)}) == 2, "one of the two pools had nothing to do"

    left.kubectl("delete", "apool", "left", "--wait=false")
    right.executions.start(2, seconds=1)
    right.wait_done()
    right.assert_nothing_lost()


def test_edited_deployment_is_reverted_and_busy_workers_finish(harness: ClusterHarness, namespace: str) -> None:
    edits = {
        "image": ("set", "image", "worker=registry.invalid/other:1"),
        "env": ("set", "env", "ACTIVITY_SLOTS=9"),
        "label": ("label", "activitypools.dev/pool-"),
        "replicas": ("scale", "--replicas=0"),
        "deletion": ("delete", "--wait=false"),
    }
    messages = {
        "image": "was edited by somebody (spec.template.spec.containers[worker].image)",
        "env": "containers[worker].env[ACTIVITY_SLOTS].value",
        "label": "was edited by somebody (metadata.labels.activitypools.dev/pool)",
        "replicas": "was scaled by somebody (1 -> 0); the pool decides its size",
        "deletion": "was deleted by somebody; the operator creates it again",
    }
    since = term(harness)
    one = {"minWorkers": 1, "maxWorkers": 1, "activation": ALONE}
    pools = {edit: a_pool(harness, namespace, edit, task=UNHURRIED, **one) for edit in edits}
    for pool in pools.values():
        pool.wait_ready(1)
    workers = {pool: pool.now.workers for pool in pools.values()}
    for edit, words in edits.items():
        pool = pools[edit]
        pool.executions.start(1, gated=True)
        pool.wait_running(1)
        verbs = words[:2] if words[0] == "set" else words[:1]
        pool.kubectl(*verbs, f"deployment/{pool.now.revisions[0]}", *words[len(verbs) :])

    for edit, pool in pools.items():
        seen = wait_reverted(pool, since)
        assert all(messages[edit] in message for message in seen.events("EditReverted")[:1])
        pool.eventually(
            "the edit is reverted", lambda view: as_declared(view, harness.handler), since=seen.moment.number
        )
    for pool in pools.values():
        pool.let_go(workers[pool])
        pool.wait_done()
        pool.executions.start(1, seconds=1)
        pool.wait_ready(1)
        pool.wait_done()
        pool.assert_nothing_lost()


def wait_reverted(pool: Pool, since: int) -> PoolView:
    """Wait for the Event of a reverted edit; return the pool at that moment.

    When the leader changed after the term `since` there may be no Event: a leader that starts after the edit has not
    seen the former Deployment.
    """
    return pool.eventually(
        "Event EditReverted", lambda view: bool(view.events("EditReverted")) or term(pool.harness) != since
    )


def events_of(view: PoolView, worker: str) -> set[str]:
    """Return the names of a worker's lifecycle events in the status."""
    return {event["name"] for event in view.lifecycle if event.get("worker") == worker}


def as_declared(view: PoolView, image: str) -> bool:
    """Whether the pool has exactly one Deployment, and it is as the pool declares it."""
    found = view.deployments
    if len(found) != 1 or "deletionTimestamp" in found[0]["metadata"]:
        return False
    worker = found[0]["spec"]["template"]["spec"]["containers"][0]
    slots = [entry["value"] for entry in worker["env"] if entry["name"] == "ACTIVITY_SLOTS"]
    return (found[0]["spec"]["replicas"], worker["image"], slots) == (1, image, ["1"])
