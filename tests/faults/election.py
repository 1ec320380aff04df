"""Who decides, whatever befalls the Lease, the clocks and the way of the reports: two replicas, a pool that is at work.

Each scenario does something to the replicas or to what is between them and the API server. Then one of them leads, all
workers report to it, and the same pods are there as before; at last everything that ran or waited is concluded.
"""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from activity_operator.settings import Settings
from tests.eventually import eventually
from tests.faults import audit
from tests.faults.beat import beating
from tests.faults.clock_wall import HOUR_SECONDS
from tests.faults.election_stage import ElectionStage
from tests.faults.plan import Fault, Kind
from tests.faults.replicas import HASTENED, Replica
from tests.faults.stage import LEASE, POOL

#: What docs/limits.md asks of a task's HeartbeatSeconds.
TASK_SECONDS = 30
#: As shipped.
DEFAULTS = {name: float(getattr(Settings(), name)) for name in HASTENED}
#: Beyond a Lease; and beyond the HeartbeatSeconds of the task that waits.
OUTAGE_SECONDS = 1.5 * HASTENED["lease_duration_seconds"]
LONG_OUTAGE_SECONDS, SHORT_TASK_SECONDS = 25.0, 15
#: For how long a leader is watched whose clock was set: several rounds of everything that repeats.
WATCHED_SECONDS = 6.0
#: How soon another process must lead, by the product's own timings, and have written, on a machine that is not late.
FAILOVER_SECONDS = 20.0
#: Workers of the pool whose reports are cut off: more than half of all, and more than chance.
CUT_WORKERS = 4

Act = Callable[[ElectionStage], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Election:
    """One scenario; its act returns what it measured, if anything.

    `ends` is how many processes end by themselves, `grows` whether the pool is made larger meanwhile, `workers` how
    many it has, `task_seconds` the HeartbeatSeconds of the task that waits. `timing` is the election's; `as_shipped`
    leaves the operator's other constants as they are, too.
    """

    name: str
    act: Act
    ends: int = 0
    grows: bool = False
    workers: int = 2
    task_seconds: int = TASK_SECONDS
    timing: Mapping[str, float] = field(default_factory=lambda: HASTENED)
    as_shipped: bool = False


def _down(seconds: float) -> Act:
    """Refuse every connection to the API server for longer than a Lease."""

    async def act(scene: ElectionStage) -> None:
        for road in scene.roads.values():
            road.refuse()
        await asyncio.sleep(seconds)
        for road in scene.roads.values():
            road.mend()

    return act


async def _hangs_for_all(scene: ElectionStage) -> None:
    """Accept and never answer; what was sent meanwhile arrives at the end."""
    for road in scene.roads.values():
        road.hang()
    await asyncio.sleep(OUTAGE_SECONDS)
    for road in scene.roads.values():
        road.mend()


async def _hangs_for_the_leader(scene: ElectionStage) -> None:
    """Cut the leader off without a word; the other one takes over, and then what the first had sent arrives."""
    former = await scene.stage.leader()
    scene.roads[former].hang()
    await eventually("the other one leads", lambda: scene.others_than(former))
    await scene.settled()
    scene.roads[former].mend()
    await asyncio.sleep(1.0)


async def _stopped(scene: ElectionStage) -> None:
    """Stop the leader's process for longer than a Lease, and let it go on when the other one leads."""
    former = await scene.stage.leader()
    scene.send(former, signal.SIGSTOP)
    await eventually("the other one leads", lambda: scene.others_than(former))
    await scene.settled()
    scene.send(former, signal.SIGCONT)
    # Something to write, for one that still thinks it leads.
    await scene.stage.change_pool(reports={"timeoutSeconds": 30})
    await asyncio.sleep(1.0)


def _clock_of_the_leader(seconds: int) -> Act:
    """Set the leader's clock: it goes on leading, and nothing comes of it."""

    async def act(scene: ElectionStage) -> None:
        leader, term = await scene.stage.leader(), await scene.term()
        scene.step_clock(leader, seconds)
        await asyncio.sleep(WATCHED_SECONDS)
        assert (await scene.stage.leader(), await scene.term()) == (leader, term), "the leader did not stay"

    return act


def _clock_of_the_standby(seconds: int, *, born: bool = False) -> Act:
    """Set the standby's clock and have it take over; `born` starts it anew first, so that it knew no other time."""

    async def act(scene: ElectionStage) -> None:
        former = await scene.stage.leader()
        standby = scene.other(former)
        scene.step_clock(standby.name, seconds)
        if born:
            standby.kill()
            await eventually("it runs again", lambda: bool(standby.ends) and standby.alive)
        await asyncio.sleep(1.0)
        scene.stage.replica(former).kill(for_good=True)
        await eventually("the standby leads", lambda: scene.others_than(former))
        await scene.settled()
        await asyncio.sleep(WATCHED_SECONDS)

    return act


async def _race(scene: ElectionStage) -> None:
    """Hold back what both write to a Lease that has run out until both have written; then both arrive at once."""
    stage = scene.stage
    for road in scene.roads.values():
        road.refuse()
    await asyncio.sleep(OUTAGE_SECONDS)
    writes = (Fault(Kind.HELD, "PUT leases", 1), Fault(Kind.HELD, "PUT leases", 2))
    stage.take(writes)
    stage.plan.arm()
    for road in scene.roads.values():
        road.mend()
    await eventually("both have written", lambda: len(stage.plan.struck) == len(writes))
    answers = await _let_go(scene, len(writes))
    for replica in stage.replicas:
        scene.send(replica.name, signal.SIGCONT)
    assert sorted(answers) == [200, 409], f"the two writes of the Lease were answered {answers}"


async def _late_renewal(scene: ElectionStage) -> None:
    """The leader is stopped as it renews; its write arrives when the other one leads."""
    stage, former = scene.stage, await scene.stage.leader()
    stage.take((Fault(Kind.HELD, "PUT leases"),))
    stage.plan.arm()
    await eventually("the other one leads", lambda: scene.others_than(former))
    await scene.settled()
    answers = await _let_go(scene, 1)
    scene.send(former, signal.SIGCONT)
    assert answers == [409], f"the late renewal was answered {answers}"
    await asyncio.sleep(1.0)


async def _let_go(scene: ElectionStage, count: int) -> list[int]:
    """Let go what is held; return how the API server answered."""
    for proxy in scene.stage.proxies:
        proxy.released.set()

    def answers() -> list[int]:
        return [status for proxy in scene.stage.proxies for _, status in proxy.answers]

    await eventually("what was held is answered", lambda: len(answers()) == count)
    return answers()


async def _blocked_shortly(scene: ElectionStage) -> None:
    """Stop the leader, and later its loop alone, for less than the renew deadline: it goes on as if nothing were."""
    leader, term = await scene.stage.leader(), await scene.term()
    scene.send(leader, signal.SIGSTOP)
    await asyncio.sleep(1.0)
    scene.send(leader, signal.SIGCONT)
    await asyncio.sleep(2.0)
    scene.send(leader, signal.SIGUSR1)
    await asyncio.sleep(3.0)
    assert (await scene.stage.leader(), await scene.term()) == (leader, term), "the leader did not stay"


async def _blocked(scene: ElectionStage) -> None:
    """Block the leader's loop for good: its watchdog ends it, and the other one leads."""
    former = scene.stage.replica(await scene.stage.leader())
    scene.send(former.name, signal.SIGUSR2)
    await eventually("its watchdog has ended it", lambda: bool(former.ends))
    await eventually("the other one leads", lambda: scene.others_than(former.name))


async def _reports_cut(scene: ElectionStage) -> None:
    """Have no report arrive; less is wanted meanwhile, and nobody leaves until the workers are heard again."""
    stage = scene.stage

    async def doubted(word: str) -> bool:
        said = ((await stage.pool()) or {}).get("status", {}).get("conditions") or ()
        return any(one["type"] == "SignalsStale" and one["status"] == word for one in said)

    scene.service.drop()
    await eventually("the reports are doubted", lambda: doubted("True"))
    await stage.change_pool(minWorkers=1)
    await asyncio.sleep(WATCHED_SECONDS)
    assert await scene.pods() == scene.before, f"of {scene.before}, {await scene.pods()} are left"
    await stage.change_pool(minWorkers=CUT_WORKERS)
    scene.service.mend()
    await eventually("they are believed again", lambda: doubted("False"))


async def _failover(scene: ElectionStage) -> str:
    """Kill the leader for good while something is to be done; return how long it took until the other one did it."""
    former = scene.stage.replica(await scene.stage.leader())
    await _just_renewed(scene)
    former.kill(for_good=True)
    return await _taken_over(scene, former, "SIGKILL")


async def _cut_off(scene: ElectionStage) -> str:
    """The same, with a leader that lives on and hears nothing more of the API server, until the other one leads."""
    former = scene.stage.replica(await scene.stage.leader())
    await _just_renewed(scene)
    scene.roads[former.name].hang()
    said = await _taken_over(scene, former, "the cut")
    scene.roads[former.name].mend()
    await asyncio.sleep(1.0)
    return said


async def _taken_over(scene: ElectionStage, former: Replica, since: str) -> str:
    """Want something of whoever leads; return how long it took from now until another one than `former` did it."""
    stage, killed = scene.stage, time.time()

    def writes(resource: str) -> list[audit.Write]:
        found = audit.writers(stage.ground.folder, (stage.namespace, stage.system))
        return [one for one in found if one.user != former.name and one.code < 300 and one.resource == resource]

    def written() -> bool:
        return any(one.name.startswith(POOL) for one in writes("deployments") if one.answered > killed)

    async with beating() as beat:
        await stage.change_pool(minWorkers=3)
        await eventually("the other one leads", lambda: scene.others_than(former.name))
        await eventually("it has made the pool larger", written)
    took = {
        kind: min(one.answered for one in writes(kind) if one.answered > killed) for kind in ("leases", "deployments")
    }
    lease, first = took["leases"] - killed, took["deployments"] - killed
    late = beat.late_until(killed + first)
    said = f"from {since} to the Lease {lease:.1f} s, to the first write about a pool {first:.1f} s"
    said += f" (this machine late by {late:.1f} s of them)"
    assert first - late <= FAILOVER_SECONDS, said
    await scene.settled()
    return said


async def _just_renewed(scene: ElectionStage) -> None:
    """Wait for the worst moment to be killed: the Lease was renewed just now."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{scene.stage.system}/leases/{LEASE}"
    before = (await scene.stage.api.call("GET", path) or {})["spec"]["renewTime"]

    async def renewed() -> bool:
        return bool((await scene.stage.api.call("GET", path) or {})["spec"]["renewTime"] != before)

    await eventually("the Lease is renewed", renewed)


ELECTIONS = {
    one.name: one
    for one in (
        Election("failover as shipped", _failover, grows=True, timing=DEFAULTS, as_shipped=True),
        Election("cut off as shipped", _cut_off, grows=True, timing=DEFAULTS, as_shipped=True),
        Election("no report arrives", _reports_cut, workers=CUT_WORKERS),
        Election("API down", _down(OUTAGE_SECONDS)),
        Election("API down for long", _down(LONG_OUTAGE_SECONDS), task_seconds=SHORT_TASK_SECONDS),
        Election("API hangs", _hangs_for_all),
        Election("leader cut off", _hangs_for_the_leader),
        Election("leader stopped", _stopped),
        Election("leader an hour ahead", _clock_of_the_leader(HOUR_SECONDS), timing=DEFAULTS),
        Election("leader an hour behind", _clock_of_the_leader(-HOUR_SECONDS), timing=DEFAULTS),
        Election("standby an hour ahead", _clock_of_the_standby(HOUR_SECONDS)),
        Election("standby an hour behind", _clock_of_the_standby(-HOUR_SECONDS)),
        Election("born an hour ahead", _clock_of_the_standby(HOUR_SECONDS, born=True)),
        Election("born an hour behind", _clock_of_the_standby(-HOUR_SECONDS, born=True)),
        Election("two write the Lease", _race),
        Election("late renewal", _late_renewal),
        Election("loop blocked shortly", _blocked_shortly, timing=DEFAULTS),
        Election("loop blocked", _blocked, ends=1),
    )
}
