"""Another `handlerImage` while tasks run: good images take over, broken ones do not."""

from typing import Any

import pytest

from tests.e2e.harness import ClusterHarness
from tests.e2e.pool import UNHURRIED, a_pool
from tests.e2e.revised import UNPULLABLE, crashing, revised
from tests.e2e.view import PoolView

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images

ALONE = {"mode": "None"}  # no sentinel: only workers poll


def test_new_image_takes_over_while_longer_tasks_finish(harness: ClusterHarness, namespace: str) -> None:
    second = revised("2")
    pool = a_pool(harness, namespace, "long", task=UNHURRIED, minWorkers=2, maxWorkers=2, activation=ALONE)
    before = pool.wait_ready(2)
    old = before.revisions[0]
    long = pool.executions.start(2, gated=True)
    pool.wait_running(2)

    pool.change(handlerImage=second)
    pool.wait_until("Reconciling", "True", "RollingOut")
    pool.eventually("the new revision has a worker", lambda view: bool(started_by(view, not_of=old)))
    later = pool.executions.start(2, seconds=20)
    pool.wait_running(3)
    assert not pool.executions.output(long[0]), "the long tasks ended before the new revision worked"
    beside = pool.since(0)
    pool.let_go(before.workers)
    pool.eventually("the old revision is gone", lambda view: old not in view.revisions)
    pool.wait_until("Reconciling", "")
    last = pool.executions.start(1, seconds=1)
    pool.wait_done()

    assert all(old in view.revisions for view in beside if view.revisions), "a Deployment went with its tasks running"
    pool.assert_nothing_lost()
    assert all(of(pod, old) for pod in pool.pods_of(long))
    assert not all(of(pod, old) for pod in pool.pods_of(later))
    assert not any(of(pod, old) for pod in pool.pods_of(last))


def test_broken_new_image_leaves_the_old_one_serving(harness: ClusterHarness, namespace: str) -> None:
    broken = {"ImagePullFailed": UNPULLABLE, "WorkerCrashed": crashing()}
    third = revised("3")
    limits: dict[str, Any] = {"minWorkers": 1, "maxWorkers": 2, "activation": ALONE}
    pools = {reason: a_pool(harness, namespace, reason.lower(), **limits) for reason in broken}
    empty = a_pool(harness, namespace, "empty", maxWorkers=1, handlerImage=UNPULLABLE)
    empty.wait_until("Ready", "True")
    empty.executions.start(1, seconds=1)
    old = {reason: pool.wait_ready(1).revisions[0] for reason, pool in pools.items()}

    for reason, pool in pools.items():
        pool.change(handlerImage=broken[reason])
    for reason, pool in pools.items():
        message = pool.wait_until("Ready", "False", reason)
        pool.wait_event(reason)
        broke = pool.now
        new = broke.revisions[-1]
        assert new != old[reason]
        assert message.startswith(f"pod {new}-")
        served = pool.executions.start(3, seconds=2)
        pool.wait_done()
        assert all(of(pod, old[reason]) for pod in pool.pods_of(served)), "the old revision stopped serving"
        canaries = max(len(started_by(view, not_of=old[reason])) for view in pool.since(0) if view.workers)
        assert canaries <= 1, "a revision that never reported had more than one canary"
    empty.wait_until("Ready", "False", "ImagePullFailed")
    (held,) = empty.executions.attempts()
    assert (held.worker != "", held.ending) == (True, ""), "the task that started the pool is not held for it"

    for pool in (*pools.values(), empty):
        pool.change(handlerImage=third)
        pool.wait_until("Ready", "True")
    for pool in (*pools.values(), empty):
        pool.wait_revisions(1)
        pool.executions.start(1, seconds=1)
        pool.wait_done()
        pool.assert_nothing_lost()
        assert third in str(pool.now.deployments)


def of(pod: str, deployment: str) -> bool:
    """Whether a pod belongs to a Deployment, by its name."""
    return pod.startswith(f"{deployment}-")


def started_by(view: PoolView, not_of: str) -> set[str]:
    """Return the pool's workers that do not belong to this Deployment."""
    return {pod for pod in view.workers if not of(pod, not_of)}
