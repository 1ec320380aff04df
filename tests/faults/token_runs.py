"""The API server itself refuses the operator's token, as after a rotation that came late; then its file has another.

The operator runs as in a pod: TLS to the API server, no proxy between, the token from a ServiceAccount's file.
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
from tests.faults.ground import REPLICAS, Ground, ground
from tests.faults.matrix import Job
from tests.faults.pod_zygote import account_folder
from tests.faults.replicas import ELECTION, HASTENED, Nursery, Service, nursery
from tests.faults.runs import judged
from tests.faults.scenarios import leads, pool_at_zero, ready
from tests.faults.stage import Stage, _add_replica, stage
from tests.faults.tokens import Account
from tests.integration.operator.cut import Road, road_to

PART = "token"
#: Seconds from when a token is refused until its successor is in the file: in time for the Lease, or not.
SOON_SECONDS, LATE_SECONDS = 1.0, 4.0
#: Calls that a replica may make in vain: it writes the Lease, and asks for what it watches, of three kinds, at a pace.
MOST_A_SECOND = 15
#: Seconds for which a token is good that expires.
EXPIRING_SECONDS = 4.0
#: What the API server counts of tokens and certificates that it did not take.
REFUSALS = 'authentication_attempts{result="error"}'


@dataclass
class TokenStage:
    """A pool of which one worker is busy and one task waits in the operator's hands. Made by `token_stage`."""

    stage: Stage
    road: Road
    accounts: dict[str, Account] = field(default_factory=dict)

    async def furnish(self) -> None:
        """Have a worker run a task that the operator took, and another task wait in its hands for a pod."""
        made = self.stage
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
        """Have a replica's token refused, and then everything that it has open end: it must say again who it is."""
        account = self.accounts[name]
        await eventually("the API server refuses the token", lambda: account.refused(account.token))
        self.road.refuse()
        self.road.mend()

    async def watched(self) -> None:
        """Change the pool twice, and see both: of the first a LIST may tell, of the second a watch alone."""
        made = self.stage
        made.kubelet.may_start.set()
        for workers in (2, 3):
            await made.change_pool(minWorkers=workers)
            await eventually(f"{workers} workers are ready", partial(ready, made, workers))

    async def conclude(self) -> None:
        """Let everything come to its end."""
        made = self.stage
        made.gate.set()
        await eventually("all executions have ended", lambda: "RUNNING" not in made.outcomes().values())

        async def nothing_is_held() -> bool:
            return not await made.records()

        await eventually("no lease is recorded any more", nothing_is_held)

    async def refusals(self) -> int:
        """Return how many calls the API server has refused for who sent them, those of the test among them."""
        async with self.stage.api._session.get("/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(REFUSALS))


Act = Callable[[TokenStage], Awaitable[str]]


async def _soon(scene: TokenStage) -> str:
    """The file has the next token a second later: the leader goes on leading."""
    leader, began = await scene.stage.leader(), await scene.stage.changes_of_leader()
    await scene.accounts[leader].revoke()
    told = await _refused_for(scene, leader, SOON_SECONDS)
    await scene.accounts[leader].renew()
    await scene.watched()
    found = await scene.stage.leader(), await scene.stage.changes_of_leader()
    if found != (leader, began):
        raise AssertionError(f"{leader} did not go on leading in term {began}: {found}")
    return told


async def _late(scene: TokenStage) -> str:
    """The leader's pod is gone, and its token with it, for longer than a Lease: the other one leads; then it does."""
    former = await scene.stage.leader()
    await scene.accounts[former].revoke()
    told = await _refused_for(scene, former, LATE_SECONDS)
    await eventually("the other one leads", lambda: _leads_other_than(scene, former))
    await scene.accounts[former].renew()
    scene.stage.replica(await scene.stage.leader()).kill(for_good=True)

    async def leads_again() -> bool:
        return await scene.stage.leader() == former

    await eventually("who had no token leads again", leads_again)
    await scene.watched()
    return told


async def _expires(scene: TokenStage) -> str:
    """The next token is good for some seconds only, and the one after it comes in time."""
    leader = await scene.stage.leader()
    account = scene.accounts[leader]
    await account.revoke()
    await _refused_for(scene, leader, SOON_SECONDS)
    await account.renew(EXPIRING_SECONDS)
    told = await _refused_for(scene, leader, SOON_SECONDS)
    await account.renew()
    await scene.watched()
    return told


async def _refused_for(scene: TokenStage, name: str, seconds: float) -> str:
    """Have a replica's token refused, and for so long after; say how often it asked in vain, which may not be often."""
    await scene.refuse(name)
    began, before = time.monotonic(), await scene.refusals()
    await asyncio.sleep(seconds)
    # A machine that stood still slept longer, and whoever is refused went on asking.
    count, took = await scene.refusals() - before, time.monotonic() - began
    said = f"{count} calls refused in {took:.1f} s"
    if count > MOST_A_SECOND * took:
        raise AssertionError(f"{name} asks again and again: {said}")
    return said


async def _leads_other_than(scene: TokenStage, name: str) -> bool:
    return await scene.stage.leader() not in {"", name}


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """One scenario; a token is bound to a Secret or to its replica's pod. `timing` is the election's."""

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
    """Play a scenario on a control plane of its own."""
    scenario = TOKEN_LOSSES[name]
    async with (
        ground() as place,
        nursery(place.folder, "tests.faults.pod_zygote") as processes,
        token_stage(place, processes, scenario) as scene,
    ):
        began, wrong, told = time.monotonic(), [], ""
        try:
            await scene.furnish()
            began = time.monotonic()
            told = await scenario.act(scene)
            await scene.conclude()
        except (AssertionError, TimeoutError) as error:
            wrong.append(str(error))
        if len(scene.stage.tasks()) != len(scene.stage.executions):
            wrong.append("a task took more than one attempt")
        run = judged(scene.stage, name, wrong, time.monotonic() - began, measured=told)
        return Played(Job(PART, name, (), replicas=scenario.replicas), run)


@asynccontextmanager
async def token_stage(ground: Ground, nursery: Nursery, scenario: TokenLoss) -> AsyncIterator[TokenStage]:
    """Set the stage with replicas that run as in pods."""
    async with stage(ground, nursery, "tokens", replicas=0) as made, AsyncExitStack() as stack:
        labelled = made.kubelet.labelled
        service = Service(lambda: [one for one in made.replicas if one.alive and one.name in labelled])
        await service.start()
        stack.push_async_callback(service.stop)
        found = TokenStage(made, await stack.enter_async_context(road_to(ground.url)))
        for name in REPLICAS[: scenario.replicas]:
            given: dict[str, Any] = {"kubeconfig": "", **scenario.timing}
            folder = account_folder(made.folder / f"{name}.log")
            account = found.accounts[name] = Account(ground, made.system, name, folder, scenario.bound_to)
            await account.open(found.road.port)
            await _add_replica(stack, made, nursery, name, service.port, given)
        yield found
        for replica in made.replicas:
            await replica.stop()
