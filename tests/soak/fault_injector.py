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
from tests.soak.draw import DrawnFault, FaultKind
from tests.soak.harness import SoakHarness
from tests.soak.hostile import Hostile
from tests.soak.next_call_faults import CallFault
from tests.soak.pools import CHANGES, POOLS, whole

#: Seconds that a fault waits for a call or an event that it can strike.
LURK_SECONDS = 6.0
#: More calls than a run makes.
EVERY = 1_000_000
#: Kinds whose watches get 410 Gone.
WATCHED = ("pods", "deployments", "activitypools")

T = TypeVar("T")


class FaultInjector:
    """Strikes while a soak runs. `strike` returns the victim, or None when there was none."""

    def __init__(self, harness: SoakHarness) -> None:
        self._harness = harness
        self._hostile = Hostile(harness)
        self.frozen: set[str] = set()

    async def strike(self, strike: DrawnFault) -> str | None:
        """Apply a fault, and wait until it is over."""
        self._harness.fault = strike.kind
        return await self._ways()[strike.kind](strike)

    def _ways(self) -> dict[FaultKind, Callable[[DrawnFault], Awaitable[str | None]]]:
        watch_events = dict.fromkeys(
            (FaultKind.EVENTS_LOST, FaultKind.EVENTS_TWICE, FaultKind.EVENTS_LATE, FaultKind.EVENTS_TORN),
            self._break_events,
        )
        calls = dict.fromkeys(
            (FaultKind.CALLS_REFUSED, FaultKind.CALLS_HUNG, FaultKind.ANSWERS_LOST, FaultKind.TOKEN_ROTATED),
            self._break_calls,
        )
        return {
            FaultKind.LEADER_KILLED: self._kill,
            FaultKind.STANDBY_KILLED: self._kill,
            FaultKind.CRASH_AT_A_CALL: self._crash,
            FaultKind.LEADER_FROZEN: self._freeze,
            FaultKind.STANDBY_FROZEN: self._freeze,
            FaultKind.WATCH_GONE: self._close_watches,
            FaultKind.AWS_THROTTLED: self._break_service,
            FaultKind.AWS_FAILED: self._break_service,
            FaultKind.AWS_ANSWERS_LOST: self._lose_answers,
            FaultKind.WORKERS_ANSWERS_LOST: self._lose_workers_answers,
            FaultKind.WORKER_KILLED: self._kill_worker,
            FaultKind.POD_DELETED: self._delete_pod,
            FaultKind.POD_REMOVED: self._delete_pod,
            FaultKind.POOL_CHANGED: self._change_pool,
            FaultKind.REPORTS_CUT: self._cut_reports,
            FaultKind.API_DOWN: self._take_api_away,
            FaultKind.LOOP_BLOCKED: self._block_loop,
            FaultKind.CLOCK_STEPPED: self._step_clock,
            FaultKind.HOSTILE_REPORTS: self._send_hostile_reports,
            FaultKind.HOSTILE_POOLS: self._make_hostile_pools,
            **watch_events,
            **calls,
        }

    async def _replica(self, what: FaultKind) -> Replica | None:
        """Return the replica that a fault strikes."""
        leader = await self._harness.leader()
        leads = what not in {FaultKind.STANDBY_KILLED, FaultKind.STANDBY_FROZEN}
        found = [one for one in self._harness.replicas if one.alive and (one.name == leader) is leads]
        return found[0] if found else None

    async def _kill(self, strike: DrawnFault) -> str | None:
        replica = await self._replica(strike.kind)
        if replica is None:
            return None
        replica.kill()
        return replica.name

    async def _crash(self, strike: DrawnFault) -> str | None:
        spared = ("WATCH", "GET", "LIST")
        return await self._fault_next_calls(strike, lambda name: not name.startswith(spared) and name != "PUT leases")

    async def _break_calls(self, strike: DrawnFault) -> str | None:
        # A poll or a watch would hang for a minute; the kubelet's liveness probe, which ends that, is not simulated.
        hangs = strike.kind is FaultKind.CALLS_HUNG
        return await self._fault_next_calls(
            strike, lambda name: not name.startswith(OPERATOR) and not (hangs and name.startswith("WATCH"))
        )

    async def _lose_answers(self, strike: DrawnFault) -> str | None:
        return await self._fault_next_calls(strike, lambda name: name.startswith(OPERATOR))

    async def _lose_workers_answers(self, strike: DrawnFault) -> str | None:
        assert strike.way is not None
        fault = self._harness.call_faults[WORKER].add(strike.way, lambda _: True, strike.times, LURK_SECONDS)
        await _until_applied(fault)
        return "workers" if fault.struck else None

    async def _break_events(self, strike: DrawnFault) -> str | None:
        return await self._fault_next_calls(strike, lambda name: not name.startswith("BOOKMARK"))

    async def _fault_next_calls(self, strike: DrawnFault, suits: Callable[[str], bool]) -> str | None:
        """Add a fault for the leader and wait until it has struck as often as planned, or its time is over."""
        replica = await self._replica(strike.kind)
        if replica is None:
            return None
        assert strike.way is not None
        fault = self._harness.call_faults[replica.name].add(strike.way, suits, strike.times, LURK_SECONDS)
        await _until_applied(fault)
        return replica.name if fault.struck else None

    async def _freeze(self, strike: DrawnFault) -> str | None:
        replica = await self._replica(strike.kind)
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

    async def _close_watches(self, strike: DrawnFault) -> str | None:
        kind = _choose(WATCHED, strike.luck)
        kube = self._harness.proxies[::2]
        for proxy in kube:
            proxy.close_gate(kind)
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            for proxy in kube:
                proxy.open_gate(kind)
        return kind

    async def _break_service(self, strike: DrawnFault) -> str | None:
        fake = self._harness.fake
        kind = service.Fault.THROTTLE if strike.kind is FaultKind.AWS_THROTTLED else service.Fault.SERVER_ERROR
        fake.inject("*", kind, None)
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            fake.clear_faults()
        return "every call"

    async def _kill_worker(self, strike: DrawnFault) -> str | None:
        node = self._harness.node
        if not (uids := node.holding()):
            return None
        uid = _choose(uids, strike.luck)
        node.kill(uid, strike.kind)
        return node.pod(uid)

    async def _delete_pod(self, strike: DrawnFault) -> str | None:
        node, by_force = self._harness.node, strike.kind is FaultKind.POD_REMOVED
        if not (uids := node.holding()):
            return None
        uid = _choose(uids, strike.luck)
        node.outsiders[uid] = strike.kind
        options = {"gracePeriodSeconds": 0} if by_force else {}
        path = f"/api/v1/namespaces/{self._harness.namespace}/pods/{node.pod(uid)}"
        await self._harness.api.call("DELETE", path, options | {"preconditions": {"uid": uid}}, expect=(404, 409))
        return node.pod(uid)

    async def _change_pool(self, strike: DrawnFault) -> str | None:
        pool = _choose(POOLS, strike.luck)
        change = _choose(CHANGES, strike.luck * len(POOLS) % 1.0)
        spec = whole(pool)
        if change.get("minWorkers", 0) > spec["maxWorkers"]:
            change = CHANGES[0]
        await self._harness.change(pool.name, change)
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            await self._harness.change(pool.name, {name: spec[name] for name in change})
        return f"{pool.name}: {next(iter(change))}"

    async def _cut_reports(self, strike: DrawnFault) -> str | None:
        harness = self._harness
        harness.reports_cut = True
        for carrying in tuple(harness.report_service._carrying):
            carrying.cancel()
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            harness.reports_cut = False
        return "all workers"

    async def _take_api_away(self, strike: DrawnFault) -> str | None:
        faults = [
            self._harness.call_faults[one.name].add(Kind.CALL_LOST, to_api_server, EVERY, strike.seconds)
            for one in self._harness.replicas
        ]
        for proxy in self._harness.proxies[::2]:
            proxy.end_streams()
        await asyncio.sleep(strike.seconds)
        return "all operators" if any(fault.struck for fault in faults) else None

    async def _block_loop(self, strike: DrawnFault) -> str | None:
        replica = await self._replica(strike.kind)
        if replica is None:
            return None
        os.kill(replica._pid, signal.SIGUSR1)
        await asyncio.sleep(strike.seconds)
        return replica.name

    async def _step_clock(self, strike: DrawnFault) -> str | None:
        replica = _choose(self._harness.replicas, strike.luck)
        hours = _choose((-1, 1), strike.luck * len(self._harness.replicas) % 1.0)
        set_clock(replica.log, hours * HOUR_SECONDS)
        try:
            await asyncio.sleep(strike.seconds)
        finally:
            set_clock(replica.log, 0)
        return f"{replica.name}: {hours:+d} h"

    async def _send_hostile_reports(self, strike: DrawnFault) -> str | None:
        replica = await self._replica(strike.kind)
        if replica is None:
            return None
        answers = await self._hostile.report(replica.port, strike.seconds, strike.luck)
        return None if not answers else f"{replica.name}, {answers}"

    async def _make_hostile_pools(self, strike: DrawnFault) -> str | None:
        return await self._hostile.make_pools(strike.seconds, strike.luck)


def to_api_server(name: str) -> bool:
    """Whether a call goes to the API server."""
    return not name.startswith(OPERATOR)


async def _until_applied(fault: CallFault) -> None:
    """Wait until a fault has struck as often as planned, or its time is over."""
    with suppress(NotInTimeError):
        await eventually("the fault has struck", lambda: not fault.left, seconds=LURK_SECONDS, every_seconds=0.1)


def _choose(among: Sequence[T], luck: float) -> T:
    return among[min(int(luck * len(among)), len(among) - 1)]
