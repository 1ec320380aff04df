"""What an operator is doing when a fault befalls it: a prelude without faults, and an act in which they strike."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.eventually import eventually
from tests.faults.stage import POOL, Stage
from tests.readiness import is_ready

Part = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`prelude` ends in a state at rest; `act` changes what is wanted and waits for what must come of it.

    `replicas` is how many the scenario itself needs; a run may have more. `deaths` is how many leaders its act ends.
    """

    name: str
    prelude: Part
    act: Part
    replicas: int = 1
    deaths: int = 0


async def ready(stage: Stage, workers: int) -> bool:
    """Whether the pool has so many workers, all ready, as its status says."""
    status = await _status(stage)
    return bool(status.get("readyReplicas") == workers == status.get("replicas"))


async def _status(stage: Stage) -> dict[str, object]:
    return dict(((await stage.pool()) or {}).get("status") or {})


async def leads(stage: Stage) -> None:
    """Wait until a replica leads."""

    async def somebody() -> bool:
        return bool(await stage.leader())

    await eventually("somebody leads", somebody)


async def pool_of(stage: Stage, workers: int, **spec: object) -> None:
    """Make a pool and wait until so many workers are ready."""
    await stage.create_pool(**spec)
    await eventually(f"{workers} workers are ready", lambda: ready(stage, workers))


async def _none_runs(stage: Stage) -> None:
    await eventually("all executions have ended", lambda: "RUNNING" not in stage.outcomes().values())


async def pool_at_zero(stage: Stage) -> None:
    """Make a pool without workers and wait until it is polled for."""
    await stage.create_pool()
    await eventually("the pool is polled for", lambda: stage.open_polls() > 0)


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
    """Give a worker a task that lasts, and wait until the operator knows.

    Its container was killed once and has run for long since: that is no failed start to a leader that is new.
    """
    stage.execute(1, gated=True)

    async def known() -> bool:
        return len(stage.kubelet.busy()) == 1 and (await _status(stage)).get("busyWorkers") == 1

    await eventually("a worker is busy, and the pool's status says so", known)
    await stage.kubelet.age(stage.kubelet.busy()[0])


async def _scale_in(stage: Stage) -> None:
    """Two of three leave: one is wanted, and one more as the eye beside the busy one. Then the task ends."""
    busy = stage.kubelet.busy()
    await stage.change_pool(minWorkers=1)
    await eventually("two workers are left", lambda: ready(stage, 2))
    assert stage.kubelet.busy() == busy, "the busy worker was not left alone"
    stage.gate.set()
    await _none_runs(stage)
    await eventually("one worker is left", lambda: ready(stage, 1))


async def _two_workers_one_busy(stage: Stage) -> None:
    await leads(stage)
    await pool_of(stage, 2, minWorkers=2)
    await _one_busy(stage)


async def _rollout(stage: Stage) -> None:
    """The new image starts to take over; the old worker finishes its task and goes.

    Which old worker is told to leave first is not for the test to say: a new leader may have heard of one only.
    """
    busy = stage.kubelet.busy()
    await stage.change_pool(handlerImage="registry.invalid/handler:2")

    async def new_one_serves() -> bool:
        pods = [raw for raw in await stage.pods() if raw["spec"]["containers"][0]["image"].endswith(":2")]
        return any(map(is_ready, pods))

    await eventually("a new worker is ready", new_one_serves)
    assert stage.kubelet.busy() == busy, "the busy worker was not left alone"
    stage.gate.set()
    await _none_runs(stage)

    async def old_one_is_gone() -> bool:
        return len(await stage.deployments()) == 1

    await eventually("the old Deployment is gone", old_one_is_gone)


async def _two_workers(stage: Stage) -> None:
    await leads(stage)
    await pool_of(stage, 2, minWorkers=2, maxWorkers=2)


async def _work(stage: Stage) -> None:
    """Workers conclude tasks: most succeed, one fails, one lasts for some task heartbeats."""
    stage.execute(1, gated=True)
    stage.execute(1, fails=True)
    stage.execute(4)
    await eventually("task heartbeats came", lambda: any(task.heartbeats >= 2 for task in stage.tasks()))
    stage.gate.set()
    await _none_runs(stage)


async def _a_lease_is_held(stage: Stage) -> None:
    """Pods do not start, so that what a poll brought stays in the operator's hands."""
    stage.kubelet.may_start.clear()
    await pool_at_zero(stage)
    stage.execute(1)

    async def held() -> bool:
        return len(await stage.records()) == 1 and len(await stage.pods()) > 0

    await eventually("a lease is recorded", held)


async def _a_claimed_lease_runs(stage: Stage) -> None:
    """A task that the operator took is a worker's now, and lasts."""
    await pool_at_zero(stage)
    await _one_busy(stage)


async def _grow(stage: Stage) -> None:
    """Workers come beside the one that has a claimed task, and must not be given it again. Then it ends."""
    await stage.change_pool(minWorkers=3)
    await eventually("three workers are ready", lambda: ready(stage, 3))
    stage.gate.set()
    await _none_runs(stage)


async def _delete(stage: Stage) -> None:
    await stage.api.call("DELETE", stage.path(POOL))
    await _none_runs(stage)

    async def nothing_is_left() -> bool:
        return not (await stage.deployments() or await stage.pods() or await stage.records())

    await eventually("nothing of the pool is left", nothing_is_left)


async def _failover(stage: Stage) -> None:
    """The leader is gone for good; the other one has its lease, and pods start again."""
    former = await stage.leader()
    stage.replica(former).kill(for_good=True)

    async def led() -> bool:
        return await stage.leader() not in {"", former}

    await eventually("another one leads", led)
    stage.kubelet.may_start.set()
    await _none_runs(stage)


async def _a_lease_is_held_by_one_of_two(stage: Stage) -> None:
    await leads(stage)
    await _a_lease_is_held(stage)


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
    )
}
