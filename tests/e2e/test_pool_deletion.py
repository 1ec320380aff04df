"""A pool deleted at the worst moment: running tasks finish, held ones are given back, nothing is left over."""

import json

import pytest

from tests.e2e.pool import PATIENCE, Pool, a_pool
from tests.e2e.revised import UNPULLABLE
from tests.e2e.stage import SYSTEM, Stage, wait_for

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images


def test_a_deleted_pool_finishes_its_tasks_gives_back_held_ones_and_leaves_nothing(
    stage: Stage, namespace: str
) -> None:
    busy = a_pool(stage, namespace, "busy", minWorkers=2, maxWorkers=2, activation={"mode": "None"})
    held = a_pool(stage, namespace, "held", maxWorkers=2, handlerImage=UNPULLABLE)
    held.executions.start(2, seconds=1)
    busy.wait_ready(2)
    running = busy.executions.start(2, gated=True)
    busy.wait_running(2)
    held.wait_for("a task is held although the image cannot be pulled", lambda: len(leases(held)) == 1)
    held.wait_until("Active", "True", "TasksPresent")
    workers = busy.workers()

    stage.kubectl("delete", "apool", "busy", "held", "-n", namespace, "--wait=false")
    wait_for("the held task is failed", lambda: bool(held.executions.interrupted()), PATIENCE)
    failed = held.executions.interrupted()
    assert [attempt.error for attempt in failed] == ["ActivityPool.Deleted"]
    assert f"{namespace}/held was deleted" in failed[0].cause
    assert busy.executions.running() == 2, "the running tasks ended before they could be disturbed"
    busy.let_go(workers)
    busy.wait_done()
    busy.assert_nothing_lost()
    assert busy.pods_of(running) == workers
    wait_for("Deployments and pods are gone", lambda: not remains(busy), PATIENCE)
    wait_for("no lease record is left", lambda: not leases(busy) and not leases(held), PATIENCE)

    held.apply(maxWorkers=2)
    held.wait_done()
    assert held.executions.interrupted() == failed, "the same pool, made anew, has its tasks and loses none"


def leases(pool: Pool) -> list[str]:
    """Return the names of the operator's records of tasks that it holds for the pool."""
    selector = f"activitypools.dev/pool-namespace={pool.namespace},activitypools.dev/pool-name={pool.name}"
    found = pool.stage.kubectl("get", "secrets", "-n", SYSTEM, "-l", selector, "-o", "json")
    return [secret["metadata"]["name"] for secret in json.loads(found)["items"]]


def remains(pool: Pool) -> list[str]:
    """Return what is left in the namespace of pools' Deployments, ReplicaSets and pods."""
    words = ("get", "deployments,replicasets,pods", "-l", "activitypools.dev/pool", "-o", "name")
    return pool.kubectl(*words).split()
