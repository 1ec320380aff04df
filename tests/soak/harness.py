"""The harness of a soak: tests/faults' harness with many pools, which records all executions and holders."""

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
from tests.faults.fault_cluster import FaultCluster
from tests.faults.harness import FaultHarness, harness_of
from tests.faults.replicas import ForkServer, Replica
from tests.soak.account import Attempt, Begun, Claim, Evidence, owner_in
from tests.soak.next_call_faults import NextCallFaults
from tests.soak.node import KubeletWithKills
from tests.soak.pools import POOLS, TASK_SECONDS, Pool, whole

HOLD_SECONDS = 2.0
#: How often an execution is retried whose attempt timed out, or whose handler failed.
RETRIES = 12
SETTINGS = {"sweep_seconds": 10.0}


class HandlerFailedError(Exception):
    """Raised by a handler whose task asks it to fail."""


@dataclass(slots=True)
class Execution:
    """One execution: its pool, its start, and how often its handler has failed on purpose."""

    pool: Pool
    arn: str
    at: float
    failed: int = 0


@dataclass(slots=True)
class Seen:
    """What the harness itself recorded, in seconds of the monotonic clock."""

    begun: list[Begun] = field(default_factory=list)
    #: Answers with a task that were dropped, with the fault that dropped them.
    swallowed: dict[str, str] = field(default_factory=dict)
    #: Writes of lease records: (time, lease, text).
    records: list[tuple[float, str, str]] = field(default_factory=list)
    #: Handlers that were cancelled although their process was not killed: (time, holder).
    cancelled: list[tuple[float, str]] = field(default_factory=list)


class SoakHarness(FaultHarness):
    """A harness with the pools of `pools`. `begin` starts executions, which are found by number."""

    activities = tuple(pool.name for pool in POOLS)

    def __init__(self, cluster: FaultCluster, number: str, folder: Path) -> None:
        super().__init__(cluster, number, folder)
        self.fake.settings.poll_hold_seconds = HOLD_SECONDS
        self.node = KubeletWithKills(self.api, self.namespace, self.system, folder, self.fake, self.run_task)
        self.kubelet = self.node
        self.call_faults: dict[str, NextCallFaults] = {}
        self.seen = Seen()
        self.runs: dict[str, Execution] = {}
        self.reports_cut = False
        #: The present fault, "" between faults; dropped answers are attributed to it.
        self.fault = ""

    def reached(self) -> list[Replica]:
        """Return the replicas that workers' reports reach, none while reports are cut."""
        return [] if self.reports_cut else super().reached()

    def plan_of(self, caller: str) -> NextCallFaults:
        """Return the faults of a caller, which both proxies of a replica share."""
        return self.call_faults.setdefault(caller, NextCallFaults(time.monotonic))

    def heard(self, caller: str, call: Call, status: int, content: bytes, passed: bool) -> None:
        """Record the tasks that an answer brought to a replica or that a fault dropped, and the recorded leases."""
        super().heard(caller, call, status, content, passed)
        if "lease-records" in call.name:
            self._note_record(caller, call, status, content, passed)
        if not passed and call.name.endswith(" GetActivityTask") and (token := json.loads(content).get("taskToken")):
            self.seen.swallowed[lease_id(token)] = self.fault

    def _note_record(self, caller: str, call: Call, status: int, content: bytes, passed: bool) -> None:
        answer = json.loads(content)
        name = (answer.get("metadata") or {}).get("name") or (answer.get("details") or {}).get("name") or ""
        lease, owner = str(name).removeprefix("lease-"), owner_in(answer)
        to = f" for a worker of pod {owner}" if owner and call.name.startswith("PATCH ") else ""
        words = f"{call.name} of {caller}{to} answered {status}{'' if passed else ', which never arrived'}"
        self.seen.records.append((time.monotonic(), lease, words))
        if to:
            self.node.claims.append(Claim(lease, owner, time.monotonic()))

    async def run_task(self, holder: str, request: Any) -> Any:
        """Run a task as its input says: for `seconds`, after `fails` failures."""
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
        """Return the number of executions by status."""
        return Counter(self.status(number) for number in self.runs)

    def attempts(self) -> list[Attempt]:
        """Return every attempt that has ended or that a handler began."""
        return [
            Attempt(lease_id(task.token), task.state, task.worker_name, task.started_at or 0.0, task.ended_at or 0.0)
            for task in self.fake.tasks
        ]

    def evidence(self) -> Evidence:
        """Return the evidence for the judge beside the service's own counts."""
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
async def harness(cluster: FaultCluster, fork_server: ForkServer, number: str) -> AsyncIterator[SoakHarness]:
    """Set up the harness with two operators and all pools; processes end with the context."""
    async with harness_of(SoakHarness, cluster, fork_server, number, 2, **SETTINGS) as made:
        await made.create_pools()
        yield made
        for replica in made.replicas:
            await replica.stop()
