"""An operator acts on an outdated view: an object vanished without a watch event, or a write arrives late."""

import asyncio
from collections.abc import Awaitable, Callable

from activity_operator.cluster.resync import SOON_SECONDS
from tests.eventually import eventually
from tests.faults.harness import HOLD_SECONDS, POOL, FaultHarness
from tests.faults.matrix import Job
from tests.faults.plan import Fault, Kind
from tests.faults.replicas import ELECTION
from tests.faults.scenarios import Scenario, leads, pool_at_zero, pool_of, ready

#: The write that shrinks the Deployment in `_late_write`: the first write of that name renders the whole Deployment.
LOWERING = Fault(Kind.HELD, "PATCH deployments", 2)
#: The write that grows the Deployment in `_late_raise`; it renders nothing else.
RAISING = Fault(Kind.HELD, "PATCH deployments", 1)


def _behind_the_watch(
    kind: str, act: Callable[[FaultHarness], Awaitable[None]]
) -> Callable[[FaultHarness], Awaitable[None]]:
    """Let `act` happen while the watch of a kind is closed; then the watch reopens and gets 410 Gone."""

    async def behind(harness: FaultHarness) -> None:
        # Wait until the resync after the operator's start has passed, so that it cannot find the change below.
        await asyncio.sleep(SOON_SECONDS + 2.0)
        for proxy in harness.proxies:
            proxy.close_gate(kind)
        await act(harness)
        for proxy in harness.proxies:
            proxy.open_gate(kind)

    return behind


#: Seconds after which a new leader trusts its workers' reports.
HEARD_SECONDS = 15.0
#: Seconds within which the status shows what a resync found; the resync after that is minutes away.
TOLD_SECONDS = 20.0


async def _a_sweep_later() -> None:
    """Wait until the resync after a LIST and its effects have passed; a state that is wrong then stays wrong."""
    await asyncio.sleep(SOON_SECONDS + 5.0)


async def _two_ready(harness: FaultHarness) -> None:
    await leads(harness)
    await pool_of(harness, 2, minWorkers=2)


async def _a_pod_vanishes(harness: FaultHarness) -> None:
    gone = (await harness.pods())[0]["metadata"]
    path = f"/api/v1/namespaces/{harness.namespace}/pods/{gone['name']}"
    await harness.api.call("DELETE", path, {"gracePeriodSeconds": 0})

    async def replaced() -> bool:
        names = {raw["metadata"]["name"] for raw in await harness.pods()}
        return gone["name"] not in names and len(names) == 2

    await eventually("its successor exists", replaced)


async def _pod_in_the_gap(harness: FaultHarness) -> None:
    await _behind_the_watch("pods", _a_pod_vanishes)(harness)
    left = {raw["metadata"]["uid"] for raw in await harness.pods()}
    await _a_sweep_later()
    await eventually("after a resync two workers are ready", lambda: ready(harness, 2), seconds=TOLD_SECONDS)
    assert {raw["metadata"]["uid"] for raw in await harness.pods()} == left, "a pod was replaced without need"


async def _the_pool_vanishes(harness: FaultHarness) -> None:
    await harness.api.call("DELETE", harness.path(POOL))

    async def gone() -> bool:
        return not await harness.deployments()

    await eventually("its Deployment is gone", gone)


async def _pool_in_the_gap(harness: FaultHarness) -> None:
    await _behind_the_watch("activitypools", _the_pool_vanishes)(harness)
    await _a_sweep_later()
    polled = harness.fake.counts["call:GetActivityTask"]
    await asyncio.sleep(2 * HOLD_SECONDS)
    assert harness.fake.counts["call:GetActivityTask"] == polled, "the operator polls for a deleted pool"


async def _another_pool_comes(harness: FaultHarness) -> None:
    await _the_pool_vanishes(harness)
    await harness.create_pool(minWorkers=1)


async def _recreated_in_the_gap(harness: FaultHarness) -> None:
    await _behind_the_watch("activitypools", _another_pool_comes)(harness)
    await eventually("its worker is ready", lambda: ready(harness, 1))
    await _a_sweep_later()
    assert await ready(harness, 1), "the worker of the new pool was replaced"
    pool, (deployment,) = await harness.pool(), await harness.deployments()
    assert pool is not None
    owner = deployment["metadata"]["ownerReferences"][0]["uid"]
    assert owner == pool["metadata"]["uid"], "the Deployment belongs to the deleted pool"


async def _three_of_five(harness: FaultHarness) -> None:
    await leads(harness)
    await pool_of(harness, 3, minWorkers=3, maxWorkers=5)


async def _late_write(harness: FaultHarness) -> None:
    """The leader hangs while it shrinks the pool; its successor grows the pool; then the leader's write arrives."""
    former = await harness.leader()
    await harness.change_pool(minWorkers=1)
    await _arrives_late(harness, former, LOWERING, 409)


async def _one_of_five(harness: FaultHarness) -> None:
    await leads(harness)
    await pool_of(harness, 1, minWorkers=1, maxWorkers=5)


async def _late_raise(harness: FaultHarness) -> None:
    """The leader hangs while it writes two workers; its successor writes four; the late write would now remove two."""
    former = await harness.leader()
    harness.execute(2, gated=True)
    await _arrives_late(harness, former, RAISING, 422)
    harness.gate.set()
    await eventually("all executions have ended", lambda: "RUNNING" not in harness.outcomes().values())


async def _arrives_late(harness: FaultHarness, former: str, fault: Fault, refused: int) -> None:
    """Hold a former leader's write until there are four workers; then deliver it, and check how it is answered."""
    await eventually("the write is held", lambda: bool(harness.plan.struck))
    # Raise minWorkers at the same moment, so that the next leader has no reason to shrink the pool.
    await harness.change_pool(minWorkers=4)

    async def larger() -> bool:
        (deployment,) = await harness.deployments()
        return await harness.leader() != former and deployment["spec"]["replicas"] >= 4

    await eventually("the other leader has grown the pool", larger)
    for proxy in harness.proxies:
        proxy.released.set()

    def answers() -> list[int]:
        return [status for proxy in harness.proxies for struck, status in proxy.answers if struck == fault]

    await eventually("the late write was answered", lambda: bool(answers()))
    harness.replica(former).kill(for_good=True)
    assert answers() == [refused], f"the late write of a former leader was answered {answers()}"

    async def four_serve() -> bool:
        status = ((await harness.pool()) or {}).get("status") or {}
        return bool(status.get("readyReplicas") == 4 == status.get("replicas"))

    await eventually("four workers are ready", four_serve)


async def _restart(harness: FaultHarness) -> None:
    """The operator is killed at rest.

    Its successor gets no event and waits until the workers' reports show that they run.
    """
    (replica,) = harness.replicas
    replica.kill()
    await eventually("its process runs again", lambda: bool(replica.ends) and replica.alive)
    await asyncio.sleep(ELECTION["lease_duration_seconds"] + 2.0)

    async def fresh() -> bool:
        status = ((await harness.pool()) or {}).get("status") or {}
        return any(c["type"] == "SignalsStale" and c["status"] == "False" for c in status["conditions"])

    await eventually("the status shows that the workers reported to the new leader", fresh, seconds=HEARD_SECONDS)


STALE = {
    scenario.name: scenario
    for scenario in (
        Scenario("pod in the gap", _two_ready, _pod_in_the_gap),
        Scenario("pool in the gap", pool_at_zero, _pool_in_the_gap),
        Scenario("recreated", pool_at_zero, _recreated_in_the_gap),
        Scenario("late write", _three_of_five, _late_write, replicas=2),
        Scenario("late raise", _one_of_five, _late_raise, replicas=2),
        Scenario("restart at rest", _two_ready, _restart),
    )
}
JOBS = (
    # After a watch restarts, a resync follows at once.
    Job("stale", "pod in the gap", ()),
    Job("stale", "pool in the gap", ()),
    Job("stale", "recreated", ()),
    Job("stale", "late write", (LOWERING,)),
    Job("stale", "late raise", (RAISING,)),
    Job("stale", "restart at rest", ()),
)
