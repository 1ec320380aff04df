"""Scale-in: idle workers leave, busy workers finish."""

import pytest

from tests.e2e.executions import Attempt
from tests.e2e.harness import ClusterHarness
from tests.e2e.pool import UNHURRIED, Pool, a_pool
from tests.e2e.view import PoolView

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images

ALONE = {"mode": "None"}  # no sentinel: only workers poll


def test_idle_workers_leave_busy_ones_finish_and_a_trickle_never_flaps(harness: ClusterHarness, namespace: str) -> None:
    uneven = a_pool(harness, namespace, "uneven", task=UNHURRIED, minWorkers=10, maxWorkers=10, activation=ALONE)
    trickle = a_pool(
        harness, namespace, "trickle", task=UNHURRIED, minWorkers=1, maxWorkers=10, activation=ALONE, scaling={}
    )
    ten = uneven.wait_ready(10).workers
    long = uneven.executions.start(3, gated=True)
    uneven.executions.start(7, seconds=2)
    uneven.wait_tasks("the short tasks end", lambda attempts: ended(attempts) == 7)
    uneven.change(minWorkers=1)

    left = uneven.eventually("six workers were chosen to leave", lambda view: len(chosen(uneven, ten, view)) >= 6)
    uneven.executions.start(2, seconds=1)  # a cordoned worker still runs the task that its open poll brings
    for _ in range(8):
        one_more(trickle)
    # Before the long tasks end: only then do the decisions count exactly these three tasks.
    uneven.wait_tasks("all but the long tasks end", lambda attempts: ended(attempts) == 9)
    uneven.let_go({uneven.worker_of(task) for task in long})
    uneven.wait_done()
    uneven.eventually("only the least number of workers is left", lambda view: len(view.workers) == 1)

    for pool in (uneven, trickle):
        pool.assert_nothing_lost()
    assert uneven.executions.running_at(left.moment.at) >= 3, "a long task did not run while six workers were chosen"
    busy = uneven.pods_of(long)
    assert len(busy) == 3
    assert not victims_beside(uneven, tasks=3) & busy, "a busy worker was chosen before an idle one"
    sizes = {one["at"]: one["desired"] for view in trickle.since(0) for one in view.decisions}
    assert max(sizes.values()) <= 2, f"one task at a time needs one worker and one free: {sizes}"
    assert len(sizes) <= 3, f"a trickle made the pool flap: {sizes}"


def ended(attempts: list[Attempt]) -> int:
    """Count the attempts that succeeded."""
    return sum(attempt.ending == "succeeded" for attempt in attempts)


def chosen(pool: Pool, workers: set[str], until: PoolView) -> set[str]:
    """Return the workers that were chosen to leave since the test's last act, up to a moment."""
    past = (pool.view(moment) for moment in pool.timeline.since(pool.mark) if moment.number <= until.moment.number)
    return {worker for view in past for worker in view.leaving(workers)}


def one_more(pool: Pool) -> None:
    """Give the pool one task, which ends once the operator knows of it, and wait until the operator knows of its end.

    Otherwise the operator might see two tasks at the same time.
    """
    (task,) = pool.executions.start(1, gated=True)
    pool.wait_until("Active", "True")
    worker = pool.worker_of(task)
    pool.let_go([worker])
    pool.wait_done()
    pool.shut_gate(worker)
    pool.wait_until("Active", "False")


def victims_beside(pool: Pool, tasks: int) -> set[str]:
    """Return the workers that any decision beside exactly this number of running tasks chose to leave."""
    decisions = [one for view in pool.since(0) for one in view.decisions if one["inflight"] == tasks]
    return {victim for decision in decisions for victim in decision.get("victims", ())}


def test_lower_limits_are_reached_as_tasks_finish(harness: ClusterHarness, namespace: str) -> None:
    lowered = a_pool(harness, namespace, "lowered", task=UNHURRIED, minWorkers=4, maxWorkers=4, activation=ALONE)
    lowered.wait_ready(4)
    running = lowered.executions.start(4, gated=True)
    lowered.wait_running(4)

    lowered.change(minWorkers=1, maxWorkers=2)
    two = lowered.eventually("two busy workers are cordoned", lambda view: len(view.cordoned) == 2)
    limit = lowered.wait_until("ScalingLimited", "True", "AtMaxWorkers")
    assert "maxWorkers is 2" in limit
    lowered.let_go(two.workers)
    lowered.eventually("at most two workers are left", lambda view: len(view.workers) <= 2)
    lowered.executions.start(2, seconds=1)
    lowered.wait_done()

    lowered.assert_nothing_lost()
    assert lowered.executions.running_at(two.moment.at) == 4
    assert len(lowered.pods_of(running)) == 4


def test_slots_share_a_worker(harness: ClusterHarness, namespace: str) -> None:
    slots = a_pool(harness, namespace, "slots", minWorkers=2, maxWorkers=2, slotsPerWorker=3)
    slots.wait_ready(2)
    together = slots.executions.start(6, seconds=8)
    slots.change(minWorkers=0)
    slots.wait_done()
    slots.wait_empty()

    slots.assert_nothing_lost()
    assert len(slots.pods_of(together)) == 2, "six tasks fill the slots of two workers"
    assert max(len(view.workers) for view in slots.since(0)) == 2
