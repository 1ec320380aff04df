"""Carries out the drawn faults: chooses each victim, and ends each fault."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from activity_worker.testing import stepfunctions as service
from tests.eventually import NotInTimeError, eventually
from tests.faults.calls import OPERATOR, WORKER
from tests.faults.clock_wall import HOUR_SECONDS, set_clock
from tests.faults.plan import Kind
from tests.faults.replicas import Replica
from tests.soak.ambush import Trap
from tests.soak.draw import Strike, What
from tests.soak.hostile import Hostile
from tests.soak.pools import CHANGES, POOLS, whole
from tests.soak.world import World

#: Seconds that a fault waits for a call or an event that it can strike.
LURK_SECONDS = 6.0
#: More calls than a run makes.
EVERY = 1_000_000
#: Kinds whose watches get 410 Gone.
WATCHED = ("pods", "deployments", "activitypools")

T = TypeVar("T")


class Striker:
    """Strikes a world. `strike` returns the victim, or None when there was none."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._hostile = Hostile(world)
        self.frozen: set[str] = set()

    async def strike(self, strike: Strike) -> str | None:
        """Apply a fault to the world, and wait until it is over."""
        self._world.fault = strike.what
        return await self._ways()[strike.what](strike)

    def _ways(self) -> dict[What, Callable[[Strike], Awaitable[str | None]]]:
        watch_events = dict.fromkeys(
            (What.EVENTS_LOST, What.EVENTS_TWICE, What.EVENTS_LATE, What.EVENTS_TORN), self._break_events
        )
        calls = dict.fromkeys(
            (What.CALLS_REFUSED, What.CALLS_HUNG, What.ANSWERS_LOST, What.TOKEN_ROTATED), self._break_calls
        )
        return {
            What.LEADER_KILLED: self._kill,
            What.STANDBY_KILLED: self._kill,
            What.CRASH_AT_A_CALL: self._crash,
            What.LEADER_FROZEN: self._freeze,
            What.STANDBY_FROZEN: self._freeze,
            What.WATCH_GONE: self._close_watches,
            What.AWS_THROTTLED: self._break_service,
            What.AWS_FAILED: self._break_service,
            What.AWS_ANSWERS_LOST: self._lose_answers,
            What.WORKERS_ANSWERS_LOST: self._lose_workers_answers,
            What.WORKER_KILLED: self._kill_worker,
            What.POD_DELETED: self._delete_pod,
            What.POD_REMOVED: self._delete_pod,
            What.POOL_CHANGED: self._change_pool,
            What.REPORTS_CUT: self._cut_reports,
            What.API_DOWN: self._take_api_away,
            What.LOOP_BLOCKED: self._block_loop,
            What.CLOCK_STEPPED: self._step_clock,
            What.HOSTILE_REPORTS: self._send_hostile_reports,
            What.HOSTILE_POOLS: self._make_hostile_pools,
            **watch_events,
            **calls,
        }

    async def _replica(self, what: What) -> Replica | None:
        """Return the replica that a fault strikes."""
        leader = await self._world.leader()
        leads = what not in {What.STANDBY_KILLED, What.STANDBY_FROZEN}
        found = [one for one in self._world.replicas if one.alive and (one.name == leader) is leads]
        return found[0] if found else None

    async def _kill(self, strike: Strike) -> str | None:
        replica = await self._replica(strike.what)
        if replica is None:
            return None
        replica.kill()
        return replica.name

    async def _crash(self, strike: Strike) -> str | None:
        spared = ("WATCH", "GET", "LIST")
        return await self._trap(strike, lambda name: not name.startswith(spared) and name != "PUT leases")

    async def _break_calls(self, strike: Strike) -> str | None:
        # A poll or a watch would hang for a minute; the kubelet's liveness probe, which ends that, is not simulated.
        hangs = strike.what is What.CALLS_HUNG
        return await self._trap(
            strike, lambda name: not name.startswith(OPERATOR) and not (hangs and name.startswith("WATCH"))
        )

    async def _lose_answers(self, strike: Strike) -> str | None:
        return await self._trap(strike, lambda name: name.startswith(OPERATOR))

    async def _lose_workers_answers(self, strike: Strike) -> str | None:
        assert strike.way is not None
        trap = self._world.ambushes[WORKER].lay(strike.way, lambda _: True, strike.times, LURK_SECONDS)
        await _sprung(trap)
        return "workers" if trap.struck else None

    async def _break_events(self, strike: Strike) -> str | None:
        return await self._trap(strike, lambda name: not name.startswith("BOOKMARK"))

    async def _trap(self, strike: Strike, suits: Callable[[str], bool]) -> str | None:
        """Add a trap for the leader and wait until it has struck as often as planned, or its time is over."""
        replica = await self._replica(strike.what)
        if replica is None:
            return None
        assert strike.way is not None
        trap = self._world.ambushes[replica.name].lay(strike.way, suits, strike.times, LURK_SECONDS)
        await _sprung(trap)
        return replica.name if trap.struck else None

    async def _freeze(self, strike: Strike) -> str | None:
        replica = await self._replica(strike.what)
        if replica is None:
            return None
        pid = replica._pid
        self.frozen.add(replica.name)
        replica.freeze()
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            if replica.alive and replica._pid == pid:
                os.kill(pid, signal.SIGCONT)
            self.frozen.discard(replica.name)
        return replica.name

    async def _close_watches(self, strike: Strike) -> str | None:
        kind = _choose(WATCHED, strike.luck)
        kube = self._world.proxies[::2]
        for proxy in kube:
            proxy.close_gate(kind)
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            for proxy in kube:
                proxy.open_gate(kind)
        return kind

    async def _break_service(self, strike: Strike) -> str | None:
        fake = self._world.fake
        kind = service.Fault.THROTTLE if strike.what is What.AWS_THROTTLED else service.Fault.SERVER_ERROR
        fake.inject("*", kind, None)
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            fake.clear_faults()
        return "every call"

    async def _kill_worker(self, strike: Strike) -> str | None:
        node = self._world.node
        if not (uids := node.holding()):
            return None
        uid = _choose(uids, strike.luck)
        node.kill(uid, strike.what)
        return node.pod(uid)

    async def _delete_pod(self, strike: Strike) -> str | None:
        node, by_force = self._world.node, strike.what is What.POD_REMOVED
        if not (uids := node.holding()):
            return None
        uid = _choose(uids, strike.luck)
        node.outsiders[uid] = strike.what
        options = {"gracePeriodSeconds": 0} if by_force else {}
        path = f"/api/v1/namespaces/{self._world.namespace}/pods/{node.pod(uid)}"
        await self._world.api.call("DELETE", path, options | {"preconditions": {"uid": uid}}, expect=(404, 409))
        return node.pod(uid)

    async def _change_pool(self, strike: Strike) -> str | None:
        pool = _choose(POOLS, strike.luck)
        change = _choose(CHANGES, strike.luck * len(POOLS) % 1.0)
        spec = whole(pool)
        if change.get("minWorkers", 0) > spec["maxWorkers"]:
            change = CHANGES[0]
        await self._world.change(pool.name, change)
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            await self._world.change(pool.name, {name: spec[name] for name in change})
        return f"{pool.name}: {next(iter(change))}"

    async def _cut_reports(self, strike: Strike) -> str | None:
        world = self._world
        world.reports_cut = True
        for carrying in tuple(world.report_service._carrying):
            carrying.cancel()
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            world.reports_cut = False
        return "all workers"

    async def _take_api_away(self, strike: Strike) -> str | None:
        traps = [
            self._world.ambushes[one.name].lay(Kind.CALL_LOST, to_api_server, EVERY, strike.seconds)
            for one in self._world.replicas
        ]
        for proxy in self._world.proxies[::2]:
            proxy.end_streams()
        await asyncio.sleep(strike.seconds)
        return "all operators" if any(trap.struck for trap in traps) else None

    async def _block_loop(self, strike: Strike) -> str | None:
        replica = await self._replica(strike.what)
        if replica is None:
            return None
        os.kill(replica._pid, signal.SIGUSR1)
        await asyncio.sleep(strike.seconds)
        return replica.name

    async def _step_clock(self, strike: Strike) -> str | None:
        replica = _choose(self._world.replicas, strike.luck)
        hours = _choose((-1, 1), strike.luck * len(self._world.replicas) % 1.0)
        set_clock(replica.log, hours * HOUR_SECONDS)
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            set_clock(replica.log, 0)
        return f"{replica.name}: {hours:+d} h"

    async def _send_hostile_reports(self, strike: Strike) -> str | None:
        replica = await self._replica(strike.what)
        if replica is None:
            return None
        answers = await self._hostile.report(replica.port, strike.seconds, strike.luck)
        return None if not answers else f"{replica.name}, {answers}"

    async def _make_hostile_pools(self, strike: Strike) -> str | None:
        return await self._hostile.make_pools(strike.seconds, strike.luck)


def to_api_server(name: str) -> bool:
    """Whether a call goes to the API server."""
    return not name.startswith(OPERATOR)


async def _sprung(trap: Trap) -> None:
    """Wait until a trap has struck as often as planned, or its time is over."""
    with suppress(NotInTimeError):
        await eventually("the trap has struck", lambda: not trap.left, seconds=LURK_SECONDS, every_seconds=0.1)


def _choose(among: Sequence[T], luck: float) -> T:
    return among[min(int(luck * len(among)), len(among) - 1)]
