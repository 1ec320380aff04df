"""What people do to a pool in its days: pause it, pin it, delete its pods, edit its Deployment, give it a rival."""

from functools import partial

import pytest

from tests.e2e.faults import term
from tests.e2e.pool import UNHURRIED, Pool, a_pool
from tests.e2e.revised import UNPULLABLE
from tests.e2e.stage import Stage

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images

ALONE = {"mode": "None"}  # no sentinel: whatever is taken is taken by a worker


def test_a_paused_pool_finishes_takes_nothing_more_and_resumes(stage: Stage, namespace: str) -> None:
    # One worker: a second, free one would still run what its open poll brings.
    worked = a_pool(stage, namespace, "worked", task=UNHURRIED, minWorkers=1, maxWorkers=1, activation=ALONE)
    holding = a_pool(stage, namespace, "holding", maxWorkers=2, handlerImage=UNPULLABLE)
    holding.executions.start(1, seconds=1)
    holding.wait_until("Ready", "False", "ImagePullFailed")
    worked.wait_ready(1)
    (running,) = worked.executions.start(1, gated=True)
    worked.wait_running(1)

    for pool in (worked, holding):
        pool.change(paused=True, handlerImage=stage.handler)
    for pool in (worked, holding):
        pool.wait_until("Paused", "True", "Paused")
        assert "workers finish what they hold and leave" in pool.message("Paused")
    waiting = worked.executions.start(2, seconds=1)
    worked.let_go([worked.worker_of(running)])
    for pool in (worked, holding):
        pool.wait_empty()
    assert worked.executions.output(running)["pod"], "the running task did not finish"
    assert [attempt.worker for execution in waiting for attempt in worked.executions.attempts(execution)] == ["", ""]
    assert worked.says("Ready", "True", "Paused")
    assert holding.says("Active", "True", "TasksPresent")
    assert holding.executions.running() == 1, "the lease that was held when the pause came is kept"

    for pool in (worked, holding):
        pool.change(paused=None)
    for pool in (worked, holding):
        pool.wait_done()
        pool.assert_nothing_lost()
        pool.wait_until("Paused", "False")


def test_kubectl_scale_pins_a_pool_and_a_deleted_pod_is_replaced(stage: Stage, namespace: str) -> None:
    since = term(stage)
    pool = a_pool(stage, namespace, "pinned", task=UNHURRIED, minWorkers=1, maxWorkers=3, activation=ALONE)
    pool.wait_ready(1)
    pool.kubectl("scale", "apool", "pinned", "--replicas=5")
    pool.wait_until("Pinned", "True", "ReplicasSet")
    assert pool.message("Pinned") == "spec.replicas is 5"
    pool.wait_until("ScalingLimited", "True", "AtMaxWorkers")
    assert pool.message("ScalingLimited") == "spec.replicas pins 5; maxWorkers is 3"
    pool.wait_ready(3)

    running = pool.executions.start(3, gated=True)
    pool.wait_running(3)
    workers = pool.workers()
    victim = min(workers)
    pool.kubectl("delete", "pod", victim, "--wait=false")
    pool.wait_for("the deleted pod is replaced", lambda: victim not in pool.workers() and len(pool.workers()) == 3)
    pool.let_go(workers)
    pool.wait_for("the three tasks end", lambda: "" not in pool.pods_of(running))
    assert victim in pool.pods_of(running), "the deleted pod's worker did not finish its task"
    # In a later term nobody knows what only the former leader had seen.
    pool.wait_for(
        "the deleted worker's end is told", lambda: "worker:stopped" in told(pool, victim) or term(stage) != since
    )
    pool.kubectl("scale", "apool", "pinned", "--replicas=0")
    pool.wait_empty()
    waiting = pool.executions.start(2, seconds=1)

    pool.change(replicas=None)
    pool.wait_until("Pinned", "False", "ReplicasUnset")
    pool.wait_done()
    pool.assert_nothing_lost()
    assert victim not in pool.pods_of(waiting)


def test_two_pools_on_one_activity_are_told_and_share_its_tasks(stage: Stage, namespace: str) -> None:
    left = a_pool(stage, namespace, "left", task=UNHURRIED, minWorkers=1, maxWorkers=1, activation=ALONE)
    right = Pool(stage, namespace, "right", left.executions)
    right.apply(minWorkers=1, maxWorkers=1, activation=ALONE)
    for pool, other in ((left, right), (right, left)):
        pool.wait_ready(1)
        assert f"also polled for by {namespace}/{other.name}" in pool.wait_event("ActivityShared")
    both = left.executions.start(2, gated=True)
    left.wait_running(2)
    for pool in (left, right):
        pool.let_go(pool.workers())
    left.wait_done()
    assert len({pod.split("-")[0] for pod in left.pods_of(both)}) == 2, "one of the two pools had nothing to do"

    stage.kubectl("delete", "apool", "left", "-n", namespace, "--wait=false")
    right.executions.start(2, seconds=1)
    right.wait_done()
    right.assert_nothing_lost()


def test_an_edited_deployment_is_put_back_and_its_busy_workers_finish(stage: Stage, namespace: str) -> None:
    edits = {
        "image": ("set", "image", "worker=registry.invalid/other:1"),
        "env": ("set", "env", "ACTIVITY_SLOTS=9"),
        "label": ("label", "activitypools.dev/pool-"),
        "replicas": ("scale", "--replicas=0"),
        "deletion": ("delete", "--wait=false"),
    }
    said = {
        "image": "was edited by somebody (spec.template.spec.containers[worker].image)",
        "env": "containers[worker].env[ACTIVITY_SLOTS].value",
        "label": "was edited by somebody (metadata.labels.activitypools.dev/pool)",
        "replicas": "was scaled by somebody (1 -> 0); the pool decides its size",
        "deletion": "was deleted by somebody; it is made anew",
    }
    since = term(stage)
    one = {"minWorkers": 1, "maxWorkers": 1, "activation": ALONE}
    pools = {edit: a_pool(stage, namespace, edit, task=UNHURRIED, **one) for edit in edits}
    for pool in pools.values():
        pool.wait_ready(1)
    workers = {pool: pool.workers() for pool in pools.values()}
    for edit, words in edits.items():
        pool = pools[edit]
        pool.executions.start(1, gated=True)
        pool.wait_running(1)
        verbs = words[:2] if words[0] == "set" else words[:1]
        pool.kubectl(*verbs, f"deployment/{pool.revisions()[0]}", *words[len(verbs) :])

    for edit, pool in pools.items():
        message = reverted(pool, since)
        assert message is None or said[edit] in message
    for pool in pools.values():
        pool.let_go(workers[pool])
        pool.wait_for("the edit is put back", partial(as_declared, pool))
        pool.wait_done()
        pool.executions.start(1, seconds=1)
        pool.wait_ready(1)
        pool.wait_done()
        pool.assert_nothing_lost()


def reverted(pool: Pool, since: str) -> str | None:
    """Wait for the Event of an edit that is put back; returns its message, None in a later term than `since`.

    Who leads since after the edit has not seen the Deployment as it was before.
    """
    pool.wait_for("Event EditReverted", lambda: bool(pool.events("EditReverted")) or term(pool.stage) != since)
    return pool.events("EditReverted")[0] if term(pool.stage) == since else None


def told(pool: Pool, worker: str) -> set[str]:
    """Return the names of the lifecycle events that the pool's status tells of a worker."""
    return {event["name"] for event in pool.status["events"] if event.get("worker") == worker}


def as_declared(pool: Pool) -> bool:
    """Whether the pool has one Deployment, which is as the pool declares it."""
    found = pool.deployments()
    if len(found) != 1 or "deletionTimestamp" in found[0]["metadata"]:
        return False
    worker = found[0]["spec"]["template"]["spec"]["containers"][0]
    slots = [entry["value"] for entry in worker["env"] if entry["name"] == "ACTIVITY_SLOTS"]
    return (found[0]["spec"]["replicas"], worker["image"], slots) == (1, pool.stage.handler, ["1"])
