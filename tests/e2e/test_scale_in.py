"""Fewer workers, and no task the poorer: whoever is idle goes, whoever is busy finishes."""

import pytest

from tests.e2e.pool import UNHURRIED, Pool, a_pool
from tests.e2e.stage import Stage

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images

ALONE = {"mode": "None"}  # no sentinel: whatever is taken is taken by a worker


def test_idle_workers_go_while_busy_ones_finish_and_a_trickle_never_flaps(stage: Stage, namespace: str) -> None:
    uneven = a_pool(stage, namespace, "uneven", task=UNHURRIED, minWorkers=10, maxWorkers=10, activation=ALONE)
    trickle = a_pool(
        stage, namespace, "trickle", task=UNHURRIED, minWorkers=1, maxWorkers=10, activation=ALONE, scaling={}
    )
    uneven.wait_ready(10)
    ten = uneven.workers()
    long = uneven.executions.start(3, gated=True)
    uneven.executions.start(7, seconds=2)
    uneven.wait_for("the short tasks end", lambda: uneven.executions.statuses().count("SUCCEEDED") == 7)
    uneven.change(minWorkers=1)

    told: set[str] = set()

    def six_told() -> bool:
        told.update(uneven.leaving(ten))
        return len(told) >= 6

    uneven.wait_for("six workers are told to go", six_told)
    assert uneven.executions.running() == 3, "a long task does not run any more"
    uneven.executions.start(2, seconds=1)  # one that is told to go still runs what its open poll brings
    for _ in range(8):
        one_more(trickle)
    # Before the long ones end: of a decision made beside three tasks it must be known which three.
    uneven.wait_for("all but the long tasks end", lambda: uneven.executions.statuses().count("SUCCEEDED") == 9)
    uneven.let_go({uneven.worker_of(task) for task in long})
    uneven.wait_done()
    uneven.wait_for("nobody is left but who is asked for", lambda: len(uneven.workers()) == 1)

    for pool in (uneven, trickle):
        pool.assert_nothing_lost()
    assert len(uneven.pods_of(long)) == 3
    told |= victims_while(uneven, tasks=3)
    assert len(told) >= 6
    assert not told & uneven.pods_of(long), "a busy worker was told to go before an idle one"
    sizes = [decision["desired"] for decision in trickle.status["decisions"]]
    assert max(sizes) <= 2, f"one task at a time needs one worker and one free: {sizes}"
    assert len(sizes) <= 3, f"a trickle made the pool flap: {sizes}"


def one_more(pool: Pool) -> None:
    """Give it one task, for as long as the operator needs to see it, and return when the operator has seen its end.

    Else the operator might see it beside the next: a trickle of two at a time.
    """
    (task,) = pool.executions.start(1, gated=True)
    pool.wait_until("Active", "True")
    worker = pool.worker_of(task)
    pool.let_go([worker])
    pool.wait_done()
    pool.shut_gate(worker)
    pool.wait_until("Active", "False")


def victims_while(pool: Pool, tasks: int) -> set[str]:
    """Return the workers that were chosen to go while so many tasks ran, as far as the status still tells."""
    decisions = [decision for decision in pool.status["decisions"] if decision["inflight"] == tasks]
    return {victim for decision in decisions for victim in decision.get("victims", ())}


def test_lower_limits_are_reached_by_finishing_tasks_and_slots_share_a_worker(stage: Stage, namespace: str) -> None:
    lowered = a_pool(stage, namespace, "lowered", task=UNHURRIED, minWorkers=4, maxWorkers=4, activation=ALONE)
    slots = a_pool(stage, namespace, "slots", minWorkers=2, maxWorkers=2, slotsPerWorker=3)
    lowered.wait_ready(4)
    running = lowered.executions.start(4, gated=True)
    lowered.wait_running(4)
    busy = lowered.workers()

    lowered.change(minWorkers=1, maxWorkers=2)
    lowered.wait_for("two busy workers are told to finish", lambda: len(lowered.cordoned()) == 2)
    assert lowered.executions.running() == 4
    lowered.wait_until("ScalingLimited", "True", "AtMaxWorkers")
    assert "maxWorkers is 2" in lowered.message("ScalingLimited")
    lowered.let_go(busy)
    slots.wait_ready(2)
    together = slots.executions.start(6, seconds=8)
    lowered.wait_ready(2)
    lowered.executions.start(2, seconds=1)
    slots.change(minWorkers=0)
    slots.wait_empty()

    for pool in (lowered, slots):
        pool.wait_done()
        pool.assert_nothing_lost()
    assert len(lowered.pods_of(running)) == 4
    assert len(slots.pods_of(together)) == 2, "six tasks fill the slots of two workers"
    assert max(decision["workers"] for decision in slots.status["decisions"]) <= 2
