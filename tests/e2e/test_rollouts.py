"""Another `handlerImage` while work goes on: good ones take over, broken ones do not."""

from typing import Any

import pytest

from tests.e2e.pool import Pool, a_pool
from tests.e2e.revised import UNPULLABLE, crashing, revised
from tests.e2e.stage import Stage

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images

ALONE = {"mode": "None"}  # no sentinel: whatever is taken is taken by a worker


def test_a_new_image_takes_over_while_tasks_longer_than_the_rollout_finish(stage: Stage, namespace: str) -> None:
    second = revised("2")
    pool = a_pool(stage, namespace, "long", minWorkers=2, maxWorkers=2, activation=ALONE)
    pool.wait_ready(2)
    old = pool.revisions()[0]
    long = pool.executions.start(2, gated=True)
    pool.wait_running(2)
    workers = pool.workers()

    pool.change(handlerImage=second)
    pool.wait_until("Reconciling", "True", "RollingOut")
    pool.wait_for("the new revision has a worker", lambda: bool(started_by(pool, not_of=old)))
    later = pool.executions.start(2, seconds=20)
    pool.wait_running(3)
    assert not pool.executions.output(long[0]), "the long tasks ended before the new revision worked"
    assert pool.revisions()[0] == old, "an old worker's Deployment was removed with its tasks running"
    pool.let_go(workers)
    pool.wait_for("the old revision is gone", lambda: old not in pool.revisions())
    pool.wait_until("Reconciling", "")
    last = pool.executions.start(1, seconds=1)
    pool.wait_done()

    pool.assert_nothing_lost()
    assert all(of(pod, old) for pod in pool.pods_of(long))
    assert not all(of(pod, old) for pod in pool.pods_of(later))
    assert not any(of(pod, old) for pod in pool.pods_of(last))


def test_a_broken_new_image_leaves_the_old_one_serving_until_it_is_mended(stage: Stage, namespace: str) -> None:
    broken = {"ImagePullFailed": UNPULLABLE, "WorkerCrashed": crashing()}
    third = revised("3")
    limits: dict[str, Any] = {"minWorkers": 1, "maxWorkers": 2, "activation": ALONE}
    pools = {reason: a_pool(stage, namespace, reason.lower(), **limits) for reason in broken}
    empty = a_pool(stage, namespace, "empty", maxWorkers=1, handlerImage=UNPULLABLE)
    empty.wait_until("Ready", "True")
    empty.executions.start(1, seconds=1)
    for pool in pools.values():
        pool.wait_ready(1)
    old = {reason: pool.revisions()[0] for reason, pool in pools.items()}

    for reason, pool in pools.items():
        pool.change(handlerImage=broken[reason])
    served = {}
    for reason, pool in pools.items():
        pool.wait_until("Ready", "False", reason)
        served[reason] = pool.executions.start(3, seconds=2)
    for reason, pool in pools.items():
        pool.wait_done()
        assert all(of(pod, old[reason]) for pod in pool.pods_of(served[reason])), "the old revision stopped serving"
        assert len(started_by(pool, not_of=old[reason])) <= 1, "more than one canary of a revision that never reported"
        assert pool.revisions()[-1] != old[reason]
        assert pool.message("Ready").startswith(f"pod {pool.revisions()[-1]}-")
        assert pool.events(reason), f"no Event says {reason}"
    empty.wait_until("Ready", "False", "ImagePullFailed")
    assert empty.executions.running() == 1, "the task that started the pool is held for it"

    for pool in (*pools.values(), empty):
        pool.change(handlerImage=third)
        pool.wait_until("Ready", "True")
    for pool in (*pools.values(), empty):
        pool.wait_revisions(1)
        pool.executions.start(1, seconds=1)
        pool.wait_done()
        pool.assert_nothing_lost()
        assert third in str(pool.deployments())


def of(pod: str, deployment: str) -> bool:
    """Whether a pod is a Deployment's, by its name."""
    return pod.startswith(f"{deployment}-")


def started_by(pool: Pool, not_of: str) -> set[str]:
    """Return the pool's workers that are not this Deployment's."""
    return {pod for pod in pool.workers() if not of(pod, not_of)}
