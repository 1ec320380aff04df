"""Leader election scenarios: two replicas and a working pool; the Lease, the clocks or the report path fail.

Each scenario does something to the replicas or to what is between them and the API server. Afterwards one replica
leads, all workers report to it, and the pods are the same. In the end every running and every waiting task is
concluded.
"""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from activity_operator.settings import OperatorSettings
from tests.eventually import eventually
from tests.faults import audit
from tests.faults.clock_wall import HOUR_SECONDS
from tests.faults.election_harness import ElectionHarness
from tests.faults.harness import LEASE, POOL
from tests.faults.lateness import measured_lateness
from tests.faults.plan import Fault, Kind
from tests.faults.replicas import HASTENED, Replica

#: The HeartbeatSeconds that docs/limits.md recommends for tasks.
TASK_SECONDS = 30
#: The election's settings as shipped.
DEFAULTS = {name: float(getattr(OperatorSettings(), name)) for name in HASTENED}
#: Longer than a Lease, and longer than the HeartbeatSeconds of the waiting task.
OUTAGE_SECONDS = 1.5 * HASTENED["lease_duration_seconds"]
LONG_OUTAGE_SECONDS, SHORT_TASK_SECONDS = 25.0, 15
#: Seconds for which a leader is observed after its clock was set: several rounds of everything periodic.
WATCHED_SECONDS = 6.0
#: The most seconds until another process leads and has written, by the product's timings, on a machine that is not
#: late.
FAILOVER_SECONDS = 20.0
#: Workers of the pool whose reports are cut off: more than half of all, so that it cannot pass for chance.
CUT_WORKERS = 4

Act = Callable[[ElectionHarness], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Election:
    """One scenario; its act returns a measurement or None.

    `ends`: how many processes end by themselves. `grows`: whether the pool is made larger meanwhile. `workers`: the
    pool's size. `task_seconds`: HeartbeatSeconds of the waiting task. `timing`: the election's settings. `as_shipped`:
    do not shorten the operator's other constants.
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

    async def act(election: ElectionHarness) -> None:
        for road in election.roads.values():
            road.refuse()
        await asyncio.sleep(seconds)
        for road in election.roads.values():
            road.mend()

    return act


async def _hangs_for_all(election: ElectionHarness) -> None:
    """Accept connections and never answer; deliver at the end what was sent meanwhile."""
    for road in election.roads.values():
        road.hang()
    await asyncio.sleep(OUTAGE_SECONDS)
    for road in election.roads.values():
        road.mend()


async def _hangs_for_the_leader(election: ElectionHarness) -> None:
    """Let the leader's connections hang; the standby takes over; then deliver what the former leader had sent."""
    former = await election.harness.leader()
    election.roads[former].hang()
    await eventually("the other replica leads", lambda: election.others_than(former))
    await election.settled()
    election.roads[former].mend()
    await asyncio.sleep(1.0)


async def _stopped(election: ElectionHarness) -> None:
    """Stop the leader's process for longer than a Lease; continue it when the other replica leads."""
    former = await election.harness.leader()
    election.send(former, signal.SIGSTOP)
    await eventually("the other replica leads", lambda: election.others_than(former))
    await election.settled()
    election.send(former, signal.SIGCONT)
    # This change makes the former leader write, if it still believes that it leads.
    await election.harness.change_pool(reports={"timeoutSeconds": 30})
    await asyncio.sleep(1.0)


def _clock_of_the_leader(seconds: int) -> Act:
    """Set the leader's clock: the leader keeps the Lease, and no task or worker is affected."""

    async def act(election: ElectionHarness) -> None:
        leader, term = await election.harness.leader(), await election.term()
        election.step_clock(leader, seconds)
        await asyncio.sleep(WATCHED_SECONDS)
        assert (await election.harness.leader(), await election.term()) == (leader, term), "the leader has changed"

    return act


def _clock_of_the_standby(seconds: int, *, born: bool = False) -> Act:
    """Set the standby's clock and make it take over; with `born` its process starts with that clock."""

    async def act(election: ElectionHarness) -> None:
        former = await election.harness.leader()
        standby = election.other(former)
        election.step_clock(standby.name, seconds)
        if born:
            standby.kill()
            await eventually("its process runs again", lambda: bool(standby.ends) and standby.alive)
        await asyncio.sleep(1.0)
        election.harness.replica(former).kill(for_good=True)
        await eventually("the standby leads", lambda: election.others_than(former))
        await election.settled()
        await asyncio.sleep(WATCHED_SECONDS)

    return act


async def _race(election: ElectionHarness) -> None:
    """Hold back both replicas' writes to an expired Lease until both have written, then deliver both at once."""
    harness = election.harness
    for road in election.roads.values():
        road.refuse()
    await asyncio.sleep(OUTAGE_SECONDS)
    writes = (Fault(Kind.HELD, "PUT leases", 1), Fault(Kind.HELD, "PUT leases", 2))
    harness.take(writes)
    harness.plan.arm()
    for road in election.roads.values():
        road.mend()
    await eventually("both have written", lambda: len(harness.plan.struck) == len(writes))
    answers = await _let_go(election, len(writes))
    for replica in harness.replicas:
        election.send(replica.name, signal.SIGCONT)
    assert sorted(answers) == [200, 409], f"the two writes of the Lease were answered {answers}"


async def _late_renewal(election: ElectionHarness) -> None:
    """Stop the leader while it renews; deliver its write when the other replica leads."""
    harness, former = election.harness, await election.harness.leader()
    harness.take((Fault(Kind.HELD, "PUT leases"),))
    harness.plan.arm()
    await eventually("the other replica leads", lambda: election.others_than(former))
    await election.settled()
    answers = await _let_go(election, 1)
    election.send(former, signal.SIGCONT)
    assert answers == [409], f"the late renewal was answered {answers}"
    await asyncio.sleep(1.0)


async def _let_go(election: ElectionHarness, count: int) -> list[int]:
    """Deliver the calls that are held back; return the API server's status codes."""
    for proxy in election.harness.proxies:
        proxy.released.set()

    def answers() -> list[int]:
        return [status for proxy in election.harness.proxies for _, status in proxy.answers]

    await eventually("the API server has answered the delayed calls", lambda: len(answers()) == count)
    return answers()


async def _blocked_shortly(election: ElectionHarness) -> None:
    """Stop the leader, later block only its loop, for less than the renew deadline: the leader keeps the Lease."""
    leader, term = await election.harness.leader(), await election.term()
    election.send(leader, signal.SIGSTOP)
    await asyncio.sleep(1.0)
    election.send(leader, signal.SIGCONT)
    await asyncio.sleep(2.0)
    election.send(leader, signal.SIGUSR1)
    await asyncio.sleep(3.0)
    assert (await election.harness.leader(), await election.term()) == (leader, term), "the leader has changed"


async def _blocked(election: ElectionHarness) -> None:
    """Block the leader's loop for good: its watchdog ends the process, and the other replica leads."""
    former = election.harness.replica(await election.harness.leader())
    election.send(former.name, signal.SIGUSR2)
    await eventually("its watchdog has ended the process", lambda: bool(former.ends))
    await eventually("the other replica leads", lambda: election.others_than(former.name))


async def _reports_cut(election: ElectionHarness) -> None:
    """Drop all reports and lower the demand; no worker leaves until reports arrive again."""
    harness = election.harness

    async def doubted(word: str) -> bool:
        conditions = ((await harness.pool()) or {}).get("status", {}).get("conditions") or ()
        return any(one["type"] == "SignalsStale" and one["status"] == word for one in conditions)

    election.service.drop()
    await eventually("SignalsStale is True", lambda: doubted("True"))
    await harness.change_pool(minWorkers=1)
    await asyncio.sleep(WATCHED_SECONDS)
    assert await election.pods() == election.before, f"of {election.before}, {await election.pods()} are left"
    await harness.change_pool(minWorkers=CUT_WORKERS)
    election.service.mend()
    await eventually("SignalsStale is False again", lambda: doubted("False"))


async def _failover(election: ElectionHarness) -> str:
    """Kill the leader for good while work is pending; return how long the other replica took until it did that work."""
    former = election.harness.replica(await election.harness.leader())
    await _just_renewed(election)
    former.kill(for_good=True)
    return await _taken_over(election, former, "SIGKILL")


async def _cut_off(election: ElectionHarness) -> str:
    """Cut the leader off from the API server while its process lives; return how long the other replica took."""
    former = election.harness.replica(await election.harness.leader())
    await _just_renewed(election)
    election.roads[former.name].hang()
    summary = await _taken_over(election, former, "the cut")
    election.roads[former.name].mend()
    await asyncio.sleep(1.0)
    return summary


async def _taken_over(election: ElectionHarness, former: Replica, since: str) -> str:
    """Change the pool; return how long it took from now until a replica other than `former` had carried it out."""
    harness, killed = election.harness, time.time()

    def writes(resource: str) -> list[audit.Write]:
        found = audit.writers(harness.cluster.folder, (harness.namespace, harness.system))
        return [one for one in found if one.user != former.name and one.code < 300 and one.resource == resource]

    def written() -> bool:
        return any(one.name.startswith(POOL) for one in writes("deployments") if one.answered > killed)

    async with measured_lateness() as lateness:
        await harness.change_pool(minWorkers=3)
        await eventually("the other replica leads", lambda: election.others_than(former.name))
        await eventually("the other replica has grown the pool", written)
    took = {
        kind: min(one.answered for one in writes(kind) if one.answered > killed) for kind in ("leases", "deployments")
    }
    lease, first = took["leases"] - killed, took["deployments"] - killed
    late = lateness.late_until(killed + first)
    summary = f"from {since} to the Lease {lease:.1f} s, to the first write about a pool {first:.1f} s"
    summary += f" (this machine late by {late:.1f} s of them)"
    assert first - late <= FAILOVER_SECONDS, summary
    await election.settled()
    return summary


async def _just_renewed(election: ElectionHarness) -> None:
    """Wait until the Lease has just been renewed, which is the worst moment to be killed."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{election.harness.system}/leases/{LEASE}"
    before = (await election.harness.api.call("GET", path) or {})["spec"]["renewTime"]

    async def renewed() -> bool:
        return bool((await election.harness.api.call("GET", path) or {})["spec"]["renewTime"] != before)

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
