"""What a soak plays on: tests/faults' stage with many pools, whose executions and holders are all written down."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from activity_worker.contract import lease_id
from tests import manifests
from tests.faults.calls import Call
from tests.faults.ground import Ground
from tests.faults.replicas import Nursery, Replica
from tests.faults.stage import Stage, stage_of
from tests.soak.account import Attempt, Begun, Evidence
from tests.soak.ambush import Ambush
from tests.soak.node import MortalKubelet
from tests.soak.pools import POOLS, TASK_SECONDS, Pool, whole

HOLD_SECONDS = 2.0
#: How often an execution whose attempt timed out, or whose handler failed, is tried again.
RETRIES = 12
SETTINGS = {"sweep_seconds": 10.0}


class HandlerFailedError(Exception):
    """What a handler raises that was told to fail."""


@dataclass(slots=True)
class Execution:
    """One execution: its pool, when it was started, and how often its handler has failed as it was told to."""

    pool: Pool
    arn: str
    at: float
    failed: int = 0


@dataclass(slots=True)
class Seen:
    """What the world itself noticed, in seconds of the monotonic clock."""

    begun: list[Begun] = field(default_factory=list)
    #: Answers with a task that never arrived, with the fault that is to blame.
    swallowed: dict[str, str] = field(default_factory=dict)
    #: What befell the records of leases: (when, lease, words).
    records: list[tuple[float, str, str]] = field(default_factory=list)
    #: Handlers that were cancelled although nothing had killed their process: (when, whose).
    cancelled: list[tuple[float, str]] = field(default_factory=list)


class World(Stage):
    """A stage with the pools of `pools`. Executions are started with `begin` and found by number."""

    activities = tuple(pool.name for pool in POOLS)

    def __init__(self, ground: Ground, number: str, folder: Path) -> None:
        super().__init__(ground, number, folder)
        self.fake.settings.poll_hold_seconds = HOLD_SECONDS
        self.node = MortalKubelet(self.api, self.namespace, self.system, folder, self.fake, self.run_task)
        self.kubelet = self.node
        self.ambushes: dict[str, Ambush] = {}
        self.seen = Seen()
        self.runs: dict[str, Execution] = {}
        self.reports_cut = False
        #: The fault that strikes now, "" between faults: it is to blame for what is swallowed.
        self.fault = ""

    def reached(self) -> list[Replica]:
        """Return the replicas that workers' reports reach, none while reports are cut."""
        return [] if self.reports_cut else super().reached()

    def plan_of(self, caller: str) -> Ambush:
        """Return the ambush of a caller, which both of a replica's proxies share."""
        return self.ambushes.setdefault(caller, Ambush(time.monotonic))

    def heard(self, caller: str, call: Call, status: int, said: bytes, passed: bool) -> None:
        """Take note of the tasks that were handed to a replica or swallowed, and of recorded leases."""
        super().heard(caller, call, status, said, passed)
        if "lease-records" in call.name:
            self._note_record(caller, call, status, said, passed)
        if not passed and call.name.endswith(" GetActivityTask") and (token := json.loads(said).get("taskToken")):
            self.seen.swallowed[lease_id(token)] = self.fault

    def _note_record(self, caller: str, call: Call, status: int, said: bytes, passed: bool) -> None:
        answer = json.loads(said)
        name = (answer.get("metadata") or {}).get("name") or (answer.get("details") or {}).get("name") or ""
        words = f"{call.name} of {caller} answered {status}{'' if passed else ', which never arrived'}"
        self.seen.records.append((time.monotonic(), str(name).removeprefix("lease-"), words))

    async def run_task(self, holder: str, request: Any) -> Any:
        """Run a task as its input says: so many seconds, and failing so many times before it succeeds."""
        self.ran[request.lease_id] += 1
        self.seen.begun.append(Begun(request.lease_id, holder, time.monotonic()))
        execution = self.runs[request.input["number"]]
        try:
            await asyncio.sleep(request.input["seconds"])
        except asyncio.CancelledError:
            if holder not in self.node.ends:
                self.seen.cancelled.append((time.monotonic(), f"{holder} with {request.lease_id[:8]}"))
            raise
        if execution.failed < request.input["fails"]:
            execution.failed += 1
            raise HandlerFailedError
        return {"done": request.input["number"]}

    def begin(self, pool: Pool, seconds: float, fails: int) -> str:
        """Start an execution of one task; return its number."""
        number = f"e{len(self.runs) + 1}"
        given = json.dumps({"number": number, "seconds": seconds, "fails": fails})
        machine = self._machine_of(pool)
        self.runs[number] = Execution(pool, "", time.monotonic(), 0)
        self.runs[number].arn = self.fake._executions.start(machine, number, given).arn
        return number

    def status(self, number: str) -> str:
        """Return an execution's status."""
        return self.fake._executions.execution(self.runs[number].arn).status

    def statuses(self) -> Counter[str]:
        """Return how many executions have which status."""
        return Counter(self.status(number) for number in self.runs)

    def attempts(self) -> list[Attempt]:
        """Return every attempt that has ended or was begun."""
        return [
            Attempt(lease_id(task.token), task.state, task.worker_name, task.started_at or 0.0, task.ended_at or 0.0)
            for task in self.tasks()
        ]

    def evidence(self) -> Evidence:
        """Return what the judge needs beside the service's own count."""
        return Evidence(
            deaths=tuple(self.node.deaths),
            begun=tuple(self.seen.begun),
            recorded=frozenset(self.recorded),
            swallowed=dict(self.seen.swallowed),
            holder_ends=dict(self.node.ends),
            hold_seconds=HOLD_SECONDS,
        )

    async def create_pools(self) -> None:
        """Make all pools."""
        for pool in POOLS:
            await self.api.call("POST", self.path(), manifests.pool(pool.name, whole(pool)))

    async def change(self, pool: str, spec: dict[str, Any]) -> None:
        """Merge into a pool's spec."""
        await self.api.call("PATCH", self.path(pool), {"spec": spec})

    def _machine_of(self, pool: Pool) -> str:
        every = {"IntervalSeconds": 1, "MaxAttempts": RETRIES, "BackoffRate": 1.0}
        retry = [{"ErrorEquals": [error], **every} for error in ("States.Timeout", "HandlerFailedError")]
        state = {"Type": "Task", "Resource": pool.arn, "HeartbeatSeconds": TASK_SECONDS, "Retry": retry, "End": True}
        definition = json.dumps({"StartAt": "Work", "States": {"Work": state}})
        arn = pool.arn.replace(":activity:", ":stateMachine:")
        return self.fake._executions.create_machine(arn, pool.name, definition).arn


@asynccontextmanager
async def world(ground: Ground, nursery: Nursery, number: str) -> AsyncIterator[World]:
    """Set it up with two operators and all pools; processes go with the context."""
    async with stage_of(World, ground, nursery, number, 2, **SETTINGS) as made:
        await made.create_pools()
        yield made
        for replica in made.replicas:
            await replica.stop()
