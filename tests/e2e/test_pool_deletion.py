"""A pool is deleted at the worst moment: running tasks finish, held leases are returned, and no object is left."""

import pytest

from tests.e2e.executions import most_at_once
from tests.e2e.harness import SYSTEM, ClusterHarness
from tests.e2e.pool import UNHURRIED, Pool, a_pool
from tests.e2e.revised import UNPULLABLE
from tests.e2e.timeline import Moment

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images


def test_deleted_pool_finishes_its_tasks_and_leaves_nothing(harness: ClusterHarness, namespace: str) -> None:
    records = harness.timeline(SYSTEM)
    busy = a_pool(harness, namespace, "busy", task=UNHURRIED, minWorkers=2, maxWorkers=2, activation={"mode": "None"})
    held = a_pool(harness, namespace, "held", maxWorkers=2, handlerImage=UNPULLABLE)
    held.executions.start(2, seconds=1)
    workers = busy.wait_ready(2).workers
    running = busy.executions.start(2, gated=True)
    busy.wait_running(2)
    records.eventually("a task is held although the image cannot be pulled", lambda now: len(leases(now, held)) == 1)
    held.wait_until("Active", "True", "TasksPresent")

    deleted = records.mark()
    harness.kubectl("delete", "apool", "busy", "held", "-n", namespace, "--wait=false")
    (failed,) = held.wait_tasks("the held task is failed", lambda found: [one for one in found if one.interrupted])
    assert failed.error == "ActivityPool.Deleted"
    assert f"{namespace}/held was deleted" in failed.cause
    assert most_at_once(busy.executions.attempts()) == 2
    assert not busy.executions.output(running[0]), "the running tasks ended before they could be disturbed"
    busy.let_go(workers)
    busy.wait_done()
    busy.assert_nothing_lost()
    assert busy.pods_of(running) == workers
    busy.eventually("the pool's Deployments and pods are gone", lambda view: not view.deployments and not view.all_pods)
    records.eventually(
        "no lease record is left", lambda now: not leases(now, busy) and not leases(now, held), since=deleted
    )

    held.apply(maxWorkers=2)
    held.wait_done()
    assert held.executions.interrupted() == [failed], "the same pool, applied again, lost a task"


def leases(moment: Moment, pool: Pool) -> list[str]:
    """Return the names of the operator's lease records for the pool."""
    wanted = {"activitypools.dev/pool-namespace": pool.namespace, "activitypools.dev/pool-name": pool.name}
    records = (secret["metadata"] for secret in moment.of_kind("Secret"))
    return [record["name"] for record in records if wanted.items() <= record.get("labels", {}).items()]
