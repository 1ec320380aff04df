"""What an operator does while a fault strikes: a prelude without faults, and an act with them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.eventually import eventually
from tests.faults.harness import POOL, FaultHarness
from tests.faults.swf_harness import SwfFaultHarness
from tests.readiness import is_ready

Part = Callable[[FaultHarness], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario. `prelude` ends in a state at rest; `act` changes the demand and waits for the result.

    `replicas` is how many the scenario itself needs; a run may have more. `deaths` is how many leaders its act ends.
    `kind` says which task service the pool has.
    """

    name: str
    prelude: Part
    act: Part
    replicas: int = 1
    deaths: int = 0
    kind: type[FaultHarness] = FaultHarness


async def ready(harness: FaultHarness, workers: int) -> bool:
    """Whether the pool's status shows this number of workers, all ready."""
    status = await _status(harness)
    return bool(status.get("readyReplicas") == workers == status.get("replicas"))


async def _status(harness: FaultHarness) -> dict[str, object]:
    return dict(((await harness.pool()) or {}).get("status") or {})


async def leads(harness: FaultHarness) -> None:
    """Wait until a replica leads."""

    async def somebody() -> bool:
        return bool(await harness.leader())

    await eventually("a replica leads", somebody)


async def pool_of(harness: FaultHarness, workers: int, **spec: object) -> None:
    """Make a pool and wait until it has this number of ready workers."""
    await harness.create_pool(**spec)
    await eventually(f"{workers} workers are ready", lambda: ready(harness, workers))


async def _none_runs(harness: FaultHarness) -> None:
    await eventually("all executions have ended", lambda: "RUNNING" not in harness.outcomes().values())


async def pool_at_zero(harness: FaultHarness) -> None:
    """Make a pool without workers and wait until the operator polls for it."""
    await harness.create_pool()
    await eventually("the operator polls for the pool", lambda: harness.open_polls() > 0)


async def _create(harness: FaultHarness) -> None:
    await pool_of(harness, 2, minWorkers=2)


async def _burst(harness: FaultHarness) -> None:
    harness.execute(3)
    await _none_runs(harness)


async def _one_of_three_is_busy(harness: FaultHarness) -> None:
    await leads(harness)
    await pool_of(harness, 3, minWorkers=3)
    await _one_busy(harness)


async def _one_busy(harness: FaultHarness) -> None:
    """Give a worker a long task, and wait until the operator knows of it.

    The worker's container was killed once, long ago: a new leader must not count that as a failed start.
    """
    harness.execute(1, gated=True)

    async def known() -> bool:
        return len(harness.kubelet.busy()) == 1 and (await _status(harness)).get("busyWorkers") == 1

    await eventually("a worker is busy, and the pool's status says so", known)
    await harness.kubelet.age(harness.kubelet.busy()[0])


async def _scale_in(harness: FaultHarness) -> None:
    """The two idle workers of three leave; the busy one stays until its task has ended, and after it."""
    busy = harness.kubelet.busy()
    await harness.change_pool(minWorkers=1)
    await eventually("one worker is left", lambda: ready(harness, 1))
    assert harness.kubelet.busy() == busy, "the busy worker was disturbed"
    harness.gate.set()
    await _none_runs(harness)
    await eventually("one worker is ready", lambda: ready(harness, 1))


async def _two_workers_one_busy(harness: FaultHarness) -> None:
    await leads(harness)
    await pool_of(harness, 2, minWorkers=2)
    await _one_busy(harness)


async def _rollout(harness: FaultHarness) -> None:
    """A new image starts to take over; the old worker finishes its task and leaves.

    The test does not fix which old worker is drained first: a new leader may have had the report of only one.
    """
    busy = harness.kubelet.busy()
    await harness.change_pool(handlerImage="registry.invalid/handler:2")

    async def new_one_serves() -> bool:
        pods = [raw for raw in await harness.pods() if raw["spec"]["containers"][0]["image"].endswith(":2")]
        return any(map(is_ready, pods))

    await eventually("a new worker is ready", new_one_serves)
    assert harness.kubelet.busy() == busy, "the busy worker was disturbed"
    harness.gate.set()
    await _none_runs(harness)

    async def old_one_is_gone() -> bool:
        return len(await harness.deployments()) == 1

    await eventually("the old Deployment is gone", old_one_is_gone)


async def _two_workers(harness: FaultHarness) -> None:
    await leads(harness)
    await pool_of(harness, 2, minWorkers=2, maxWorkers=2)


async def _work(harness: FaultHarness) -> None:
    """Workers conclude tasks: most succeed, one fails, one lasts for several task heartbeats."""
    harness.execute(1, gated=True)
    harness.execute(1, fails=True)
    harness.execute(4)
    await eventually("task heartbeats came", lambda: any(task.heartbeats >= 2 for task in harness.tasks()))
    harness.gate.set()
    await _none_runs(harness)
    # A count of Amazon SWF that saw the last task may be followed by the next one up to a minute later.
    await eventually("the pool has no tasks", lambda: _shows(harness, "Active", "False"))


async def _shows(harness: FaultHarness, condition: str, status: str) -> bool:
    pool = await harness.pool() or {}
    found = (pool.get("status") or {}).get("conditions") or ()
    return any(one["type"] == condition and one["status"] == status for one in found)


async def _a_lease_is_held(harness: FaultHarness) -> None:
    """Pods do not start, so the operator holds the lease of a task from its poll."""
    harness.kubelet.may_start.clear()
    await pool_at_zero(harness)
    harness.execute(1)

    async def held() -> bool:
        return len(await harness.records()) == 1 and len(await harness.pods()) > 0

    await eventually("a lease is recorded", held)


async def _a_claimed_lease_runs(harness: FaultHarness) -> None:
    """A worker has claimed a task from the operator, and the task runs on."""
    await pool_at_zero(harness)
    await _one_busy(harness)


async def _grow(harness: FaultHarness) -> None:
    """Add workers beside the one with a claimed task; none of them may be granted that task. Then the task ends."""
    await harness.change_pool(minWorkers=3)
    await eventually("three workers are ready", lambda: ready(harness, 3))
    harness.gate.set()
    await _none_runs(harness)


async def _delete(harness: FaultHarness) -> None:
    await harness.api.call("DELETE", harness.path(POOL))
    await _none_runs(harness)

    async def nothing_is_left() -> bool:
        return not (await harness.deployments() or await harness.pods() or await harness.records())

    await eventually("every object of the pool is gone", nothing_is_left)


async def _failover(harness: FaultHarness) -> None:
    """The leader ends for good; the other replica takes over its lease, and pods start again."""
    former = await harness.leader()
    harness.replica(former).kill(for_good=True)

    async def led() -> bool:
        return await harness.leader() not in {"", former}

    await eventually("the other replica leads", led)
    harness.kubelet.may_start.set()
    await _none_runs(harness)


async def _a_lease_is_held_by_one_of_two(harness: FaultHarness) -> None:
    await leads(harness)
    await _a_lease_is_held(harness)


async def _counted_pool_at_zero(harness: FaultHarness) -> None:
    """Make a pool without workers that only counts its task list, and wait for a count."""
    await harness.create_pool(pollAtZero=False)

    async def counted() -> bool:
        return (await _status(harness)).get("backlog") == 0

    await eventually("the operator counts the pool's list", counted)


async def _counted_burst(harness: FaultHarness) -> None:
    """End a burst, and wait for a count after it: at rest the list is counted seldom."""
    await _burst(harness)
    await eventually("the pool has no tasks", lambda: _shows(harness, "Active", "False"))


async def _burst_after_a_clock_step(harness: FaultHarness) -> None:
    """The service's clock is an hour ahead of the operator's and the workers', so it refuses their signatures."""
    harness.task_service.settings.clock_offset_seconds = 3600.0
    await _burst(harness)


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("create", leads, _create),
        Scenario("burst", pool_at_zero, _burst),
        Scenario("claimed", _a_claimed_lease_runs, _grow),
        Scenario("work", _two_workers, _work),
        Scenario("scale-in", _one_of_three_is_busy, _scale_in),
        Scenario("rollout", _two_workers_one_busy, _rollout),
        Scenario("delete", _a_lease_is_held, _delete),
        Scenario("failover", _a_lease_is_held_by_one_of_two, _failover, replicas=2, deaths=1),
        Scenario("swf-burst", pool_at_zero, _burst, kind=SwfFaultHarness),
        Scenario("swf-counts", _counted_pool_at_zero, _counted_burst, kind=SwfFaultHarness),
        Scenario("swf-work", _two_workers, _work, kind=SwfFaultHarness),
        Scenario("swf-delete", _a_lease_is_held, _delete, kind=SwfFaultHarness),
        Scenario("swf-clock", pool_at_zero, _burst_after_a_clock_step, kind=SwfFaultHarness),
    )
}
