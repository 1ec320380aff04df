"""The API server refuses the operator's token, as after a late rotation; then the file has the next one.

The operator runs as in a pod: TLS to the API server, no proxy, the token from a ServiceAccount's file.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.eventually import eventually
from tests.faults.campaign import Played
from tests.faults.election import DEFAULTS
from tests.faults.fault_cluster import REPLICAS, FaultCluster, fault_cluster
from tests.faults.forked_pod_operators import account_folder
from tests.faults.harness import FaultHarness, _add_replica, harness
from tests.faults.matrix import Job
from tests.faults.replicas import ELECTION, HASTENED, ForkServer, Service, fork_server
from tests.faults.runs import judged
from tests.faults.scenarios import leads, pool_at_zero, ready
from tests.faults.tokens import Account
from tests.integration.operator.cut import Road, road_to

PART = "token"
#: Seconds from the refusal of a token until the next one is in the file: within the Lease, and after it.
SOON_SECONDS, LATE_SECONDS = 1.0, 4.0
#: The most refused calls of a replica in a second: it writes the Lease and relists three kinds, rate-limited.
MOST_A_SECOND = 15
#: Seconds for which the expiring token is valid.
EXPIRING_SECONDS = 4.0
#: The API server's metric of rejected tokens and certificates.
REFUSALS = 'authentication_attempts{result="error"}'


@dataclass
class TokenHarness:
    """A pool with one busy worker and one task whose lease the operator holds. Made by `token_harness`."""

    harness: FaultHarness
    road: Road
    accounts: dict[str, Account] = field(default_factory=dict)

    async def set_up_pools(self) -> None:
        """Have a worker run a task from the operator's poll, and have the operator hold another task for a pod."""
        made = self.harness
        await leads(made)
        await pool_at_zero(made)
        made.execute(1, gated=True)
        await eventually("a worker is busy", lambda: len(made.kubelet.busy()) == 1)
        made.kubelet.may_start.clear()
        made.execute(1)

        async def held() -> bool:
            return len(await made.records()) > 0 and len(await made.pods()) > 1

        await eventually("a lease is recorded, and a pod is made for it", held)

    async def refuse(self, name: str) -> None:
        """Revoke a replica's token, then cut its open connections: it must authenticate again."""
        account = self.accounts[name]
        await eventually("the API server refuses the token", lambda: account.refused(account.token))
        self.road.refuse()
        self.road.mend()

    async def watched(self) -> None:
        """Change the pool twice and wait for each effect: a LIST can show the first change, only a watch the second."""
        made = self.harness
        made.kubelet.may_start.set()
        for workers in (2, 3):
            await made.change_pool(minWorkers=workers)
            await eventually(f"{workers} workers are ready", partial(ready, made, workers))

    async def conclude(self) -> None:
        """Finish all work."""
        made = self.harness
        made.gate.set()
        await eventually("all executions have ended", lambda: "RUNNING" not in made.outcomes().values())

        async def nothing_is_held() -> bool:
            return not await made.records()

        await eventually("no lease record is left", nothing_is_held)

    async def refusals(self) -> int:
        """Return how many calls the API server has refused for their credentials, the test's own included."""
        async with self.harness.api._session.get("/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(REFUSALS))


Act = Callable[[TokenHarness], Awaitable[str]]


async def _soon(election: TokenHarness) -> str:
    """The next token is in the file a second later: the leader keeps leading."""
    leader, began = await election.harness.leader(), await election.harness.changes_of_leader()
    await election.accounts[leader].revoke()
    measured = await _refused_for(election, leader, SOON_SECONDS)
    await election.accounts[leader].renew()
    await election.watched()
    found = await election.harness.leader(), await election.harness.changes_of_leader()
    if found != (leader, began):
        raise AssertionError(f"{leader} did not keep leading in term {began}: {found}")
    return measured


async def _late(election: TokenHarness) -> str:
    """The leader has no token for longer than a Lease: the other replica leads; later the first one leads again."""
    former = await election.harness.leader()
    await election.accounts[former].revoke()
    measured = await _refused_for(election, former, LATE_SECONDS)
    await eventually("the other replica leads", lambda: _leads_other_than(election, former))
    await election.accounts[former].renew()
    election.harness.replica(await election.harness.leader()).kill(for_good=True)

    async def leads_again() -> bool:
        return await election.harness.leader() == former

    await eventually("the replica that had no token leads again", leads_again)
    await election.watched()
    return measured


async def _expires(election: TokenHarness) -> str:
    """The next token is valid for a few seconds only, and the one after it comes in time."""
    leader = await election.harness.leader()
    account = election.accounts[leader]
    await account.revoke()
    await _refused_for(election, leader, SOON_SECONDS)
    await account.renew(EXPIRING_SECONDS)
    measured = await _refused_for(election, leader, SOON_SECONDS)
    await account.renew()
    await election.watched()
    return measured


async def _refused_for(election: TokenHarness, name: str, seconds: float) -> str:
    """Revoke a replica's token for `seconds`; return how many of its calls were refused. That must be few."""
    await election.refuse(name)
    began, before = time.monotonic(), await election.refusals()
    await asyncio.sleep(seconds)
    # The seconds are measured, because the sleep lasts longer on a busy machine and the replica calls on meanwhile.
    count, took = await election.refusals() - before, time.monotonic() - began
    summary = f"{count} calls refused in {took:.1f} s"
    if count > MOST_A_SECOND * took:
        raise AssertionError(f"{name} repeats refused calls too fast: {summary}")
    return summary


async def _leads_other_than(election: TokenHarness, name: str) -> bool:
    return await election.harness.leader() not in {"", name}


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """One scenario; a token is bound to a Secret or to its replica's pod. `timing` is the election's settings."""

    name: str
    act: Act
    bound_to: str = "secrets"
    replicas: int = 1
    timing: Mapping[str, float] = field(default_factory=lambda: HASTENED)


TOKEN_LOSSES = {
    one.name: one
    for one in (
        TokenLoss("renewed soon", _soon, timing=DEFAULTS),
        TokenLoss("renewed late", _late, "pods", replicas=2, timing=ELECTION),
        TokenLoss("expires", _expires),
    )
}


async def play(name: str) -> Played:
    """Play a scenario on its own control plane."""
    scenario = TOKEN_LOSSES[name]
    async with (
        fault_cluster() as place,
        fork_server(place.folder, "tests.faults.forked_pod_operators") as processes,
        token_harness(place, processes, scenario) as election,
    ):
        began, wrong, measured = time.monotonic(), [], ""
        try:
            await election.set_up_pools()
            began = time.monotonic()
            measured = await scenario.act(election)
            await election.conclude()
        except (AssertionError, TimeoutError) as error:
            wrong.append(str(error))
        if len(election.harness.tasks()) != len(election.harness.executions):
            wrong.append("a task took more than one attempt")
        run = judged(election.harness, name, wrong, time.monotonic() - began, measured=measured)
        return Played(Job(PART, name, (), replicas=scenario.replicas), run)


@asynccontextmanager
async def token_harness(
    cluster: FaultCluster, fork_server: ForkServer, scenario: TokenLoss
) -> AsyncIterator[TokenHarness]:
    """Set up the harness with replicas that run as in pods."""
    async with harness(cluster, fork_server, "tokens", replicas=0) as made, AsyncExitStack() as stack:
        labelled = made.kubelet.labelled
        service = Service(lambda: [one for one in made.replicas if one.alive and one.name in labelled])
        await service.start()
        stack.push_async_callback(service.stop)
        found = TokenHarness(made, await stack.enter_async_context(road_to(cluster.url)))
        for name in REPLICAS[: scenario.replicas]:
            given: dict[str, Any] = {"kubeconfig": "", **scenario.timing}
            folder = account_folder(made.folder / f"{name}.log")
            account = found.accounts[name] = Account(cluster, made.system, name, folder, scenario.bound_to)
            await account.open(found.road.port)
            await _add_replica(stack, made, fork_server, name, service.port, given)
        yield found
        for replica in made.replicas:
            await replica.stop()
