"""What an operator does while a fault strikes: a prelude without faults, and an act with them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.eventually import eventually
from tests.faults.stage import POOL, Stage
from tests.faults.swf_stage import SwfStage
from tests.readiness import is_ready

Part = Callable[[Stage], Awaitable[None]]


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
    kind: type[Stage] = Stage


async def ready(stage: Stage, workers: int) -> bool:
    """Whether the pool's status shows this number of workers, all ready."""
    status = await _status(stage)
    return bool(status.get("readyReplicas") == workers == status.get("replicas"))


async def _status(stage: Stage) -> dict[str, object]:
    return dict(((await stage.pool()) or {}).get("status") or {})


async def leads(stage: Stage) -> None:
    """Wait until a replica leads."""

    async def somebody() -> bool:
        return bool(await stage.leader())

    await eventually("a replica leads", somebody)


async def pool_of(stage: Stage, workers: int, **spec: object) -> None:
    """Make a pool and wait until it has this number of ready workers."""
    await stage.create_pool(**spec)
    await eventually(f"{workers} workers are ready", lambda: ready(stage, workers))


async def _none_runs(stage: Stage) -> None:
    await eventually("all executions have ended", lambda: "RUNNING" not in stage.outcomes().values())


async def pool_at_zero(stage: Stage) -> None:
    """Make a pool without workers and wait until the operator polls for it."""
    await stage.create_pool()
    await eventually("the operator polls for the pool", lambda: stage.open_polls() > 0)


async def _create(stage: Stage) -> None:
    await pool_of(stage, 2, minWorkers=2)


async def _burst(stage: Stage) -> None:
    stage.execute(3)
    await _none_runs(stage)


async def _one_of_three_is_busy(stage: Stage) -> None:
    await leads(stage)
    await pool_of(stage, 3, minWorkers=3)
    await _one_busy(stage)


async def _one_busy(stage: Stage) -> None:
    """Give a worker a long task, and wait until the operator knows of it.

    The worker's container was killed once, long ago: a new leader must not count that as a failed start.
    """
    stage.execute(1, gated=True)

    async def known() -> bool:
        return len(stage.kubelet.busy()) == 1 and (await _status(stage)).get("busyWorkers") == 1

    await eventually("a worker is busy, and the pool's status says so", known)
    await stage.kubelet.age(stage.kubelet.busy()[0])


async def _scale_in(stage: Stage) -> None:
    """The two idle workers of three leave; the busy one stays until its task has ended, and after it."""
    busy = stage.kubelet.busy()
    await stage.change_pool(minWorkers=1)
    await eventually("one worker is left", lambda: ready(stage, 1))
    assert stage.kubelet.busy() == busy, "the busy worker was disturbed"
    stage.gate.set()
    await _none_runs(stage)
    await eventually("one worker is ready", lambda: ready(stage, 1))


async def _two_workers_one_busy(stage: Stage) -> None:
    await leads(stage)
    await pool_of(stage, 2, minWorkers=2)
    await _one_busy(stage)


async def _rollout(stage: Stage) -> None:
    """A new image starts to take over; the old worker finishes its task and leaves.

    The test does not fix which old worker is drained first: a new leader may have had the report of only one.
    """
    busy = stage.kubelet.busy()
    await stage.change_pool(handlerImage="registry.invalid/handler:2")

    async def new_one_serves() -> bool:
        pods = [raw for raw in await stage.pods() if raw["spec"]["containers"][0]["image"].endswith(":2")]
        return any(map(is_ready, pods))

    await eventually("a new worker is ready", new_one_serves)
    assert stage.kubelet.busy() == busy, "the busy worker was disturbed"
    stage.gate.set()
    await _none_runs(stage)

    async def old_one_is_gone() -> bool:
        return len(await stage.deployments()) == 1

    await eventually("the old Deployment is gone", old_one_is_gone)


async def _two_workers(stage: Stage) -> None:
    await leads(stage)
    await pool_of(stage, 2, minWorkers=2, maxWorkers=2)


async def _work(stage: Stage) -> None:
    """Workers conclude tasks: most succeed, one fails, one lasts for several task heartbeats."""
    stage.execute(1, gated=True)
    stage.execute(1, fails=True)
    stage.execute(4)
    await eventually("task heartbeats came", lambda: any(task.heartbeats >= 2 for task in stage.tasks()))
    stage.gate.set()
    await _none_runs(stage)
    # A count of Amazon SWF that saw the last task may be followed by the next one up to a minute later.
    await eventually("the pool has no tasks", lambda: _shows(stage, "Active", "False"))


async def _shows(stage: Stage, condition: str, status: str) -> bool:
    pool = await stage.pool() or {}
    found = (pool.get("status") or {}).get("conditions") or ()
    return any(one["type"] == condition and one["status"] == status for one in found)


async def _a_lease_is_held(stage: Stage) -> None:
    """Pods do not start, so the operator holds the lease of a task from its poll."""
    stage.kubelet.may_start.clear()
    await pool_at_zero(stage)
    stage.execute(1)

    async def held() -> bool:
        return len(await stage.records()) == 1 and len(await stage.pods()) > 0

    await eventually("a lease is recorded", held)


async def _a_claimed_lease_runs(stage: Stage) -> None:
    """A worker has claimed a task from the operator, and the task runs on."""
    await pool_at_zero(stage)
    await _one_busy(stage)


async def _grow(stage: Stage) -> None:
    """Add workers beside the one with a claimed task; none of them may be granted that task. Then the task ends."""
    await stage.change_pool(minWorkers=3)
    await eventually("three workers are ready", lambda: ready(stage, 3))
    stage.gate.set()
    await _none_runs(stage)


async def _delete(stage: Stage) -> None:
    await stage.api.call("DELETE", stage.path(POOL))
    await _none_runs(stage)

    async def nothing_is_left() -> bool:
        return not (await stage.deployments() or await stage.pods() or await stage.records())

    await eventually("every object of the pool is gone", nothing_is_left)


async def _failover(stage: Stage) -> None:
    """The leader ends for good; the other replica takes over its lease, and pods start again."""
    former = await stage.leader()
    stage.replica(former).kill(for_good=True)

    async def led() -> bool:
        return await stage.leader() not in {"", former}

    await eventually("the other replica leads", led)
    stage.kubelet.may_start.set()
    await _none_runs(stage)


async def _a_lease_is_held_by_one_of_two(stage: Stage) -> None:
    await leads(stage)
    await _a_lease_is_held(stage)


async def _counted_pool_at_zero(stage: Stage) -> None:
    """Make a pool without workers that only counts its task list, and wait for a count."""
    await stage.create_pool(pollAtZero=False)

    async def counted() -> bool:
        return (await _status(stage)).get("backlog") == 0

    await eventually("the operator counts the pool's list", counted)


async def _burst_after_a_clock_step(stage: Stage) -> None:
    """The service's clock is an hour ahead of the operator's and the workers', so it refuses their signatures."""
    stage.task_service.settings.clock_offset_seconds = 3600.0
    await _burst(stage)


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
        Scenario("swf-burst", pool_at_zero, _burst, kind=SwfStage),
        Scenario("swf-counts", _counted_pool_at_zero, _burst, kind=SwfStage),
        Scenario("swf-work", _two_workers, _work, kind=SwfStage),
        Scenario("swf-delete", _a_lease_is_held, _delete, kind=SwfStage),
        Scenario("swf-clock", pool_at_zero, _burst_after_a_clock_step, kind=SwfStage),
    )
}
