"""The harness of the election: two replicas whose connections can be cut, a working pool, and a waiting task."""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from activity_operator.cluster.resources import LEASES
from activity_operator.leases.secret_store import LABEL_NAME
from activity_worker.contract import LABEL_POOL
from tests import manifests
from tests.eventually import eventually
from tests.faults.clock_wall import set_clock
from tests.faults.fault_cluster import REPLICAS, FaultCluster, kubeconfig
from tests.faults.harness import ACTIVITY, LEASE, POOL, FaultHarness, _add_replica, harness
from tests.faults.replicas import ForkServer, Replica, Service
from tests.faults.scenarios import leads, ready
from tests.integration.operator.cut import Road, road_to
from tests.servers.ports import free_port

WAITING = "waiting"
#: Seconds without a change after which the harness counts as at rest.
STILL_SECONDS = 3.0
#: Time limit for workers to start while control planes start too; nothing is under test yet.
FURNISH_SECONDS = 180.0
#: Seconds. Longer than any scenario and shorter than a clock's step, so a process that believes the clock fails the
#: task.
HOLD_SECONDS = 600


class CutService(Service):
    """The report Service; a test can make it drop every connection."""

    cut = False

    def drop(self) -> None:
        """Close every open connection and every new one."""
        self.cut = True
        for task in self._carrying:
            task.cancel()

    def mend(self) -> None:
        """Forward connections to the leader again."""
        self.cut = False


@dataclass
class ElectionHarness:
    """The harness of the election scenarios, made by `election_harness`."""

    harness: FaultHarness
    #: HeartbeatSeconds of the waiting task: longer than a change of leader takes with the run's timings.
    task_seconds: int
    roads: dict[str, Road] = field(default_factory=dict)
    service: CutService = field(init=False)
    #: The pods of both pools before the scenario's fault, by UID.
    before: dict[str, str] = field(default_factory=dict)

    async def set_up_pools(self, workers: int) -> None:
        """Make one worker busy and others free; the leader holds the lease of a task whose worker does not start."""
        harness = self.harness
        await leads(harness)
        reports = {"timeoutSeconds": 20}
        await harness.create_pool(minWorkers=workers, maxWorkers=workers + 1, reports=reports)
        await eventually("all workers are ready", lambda: ready(harness, workers), seconds=FURNISH_SECONDS)
        harness.execute(1, gated=True)
        await eventually("a worker is busy", lambda: len(harness.kubelet.busy()) == 1)
        # While the operator held the task, it may have asked for a third worker: no pod starts after this.
        await self._at_rest()
        await eventually("the pool has its workers", lambda: ready(harness, workers), seconds=FURNISH_SECONDS)
        harness.kubelet.may_start.clear()
        await self._wait_at_zero(workers)
        await self._at_rest()
        self.before = await self.pods()

    async def _at_rest(self) -> None:
        """Wait until nothing has changed for a while, so that a later change is the fault's effect."""
        since, last = time.monotonic(), ""

        async def still() -> bool:
            nonlocal since, last
            harness = self.harness
            objects = [
                await harness.leader(),
                *await harness.pods(),
                *await harness.deployments(),
                *await harness.records(),
            ]
            if (found := str(objects)) != last:
                since, last = time.monotonic(), found
            return time.monotonic() - since >= STILL_SECONDS

        await eventually("the harness is at rest", still)

    async def _wait_at_zero(self, workers: int) -> None:
        harness, arn = self.harness, _arn(WAITING)
        spec = {"activityArn": arn, "handlerImage": "registry.invalid/handler:1", "maxWorkers": 1,
                "taskHeartbeat": {"intervalSeconds": 1}, "activation": {"holdSeconds": HOLD_SECONDS}}  # fmt: skip
        harness.fake.create_activity(WAITING)
        await harness.api.call("POST", harness.path(), manifests.pool(WAITING, spec))
        await eventually("the operator polls for the pool at zero", lambda: harness.fake.open_polls(arn) > 0)
        state = {"Type": "Task", "Resource": arn, "HeartbeatSeconds": self.task_seconds, "End": True}
        definition = json.dumps({"StartAt": "Work", "States": {"Work": state}})
        executions = harness.fake._executions
        machine = executions.create_machine(arn.replace(":activity:", ":stateMachine:"), WAITING, definition)
        harness.executions[WAITING] = executions.start(machine.arn, WAITING, json.dumps({"number": WAITING})).arn

        async def held() -> bool:
            pods = Counter(raw["metadata"]["labels"][LABEL_POOL] for raw in await harness.pods())
            # If the running task came through an operator's poll, it has a record, too.
            recorded = {raw["metadata"]["labels"][LABEL_NAME] for raw in await harness.records()}
            return WAITING in recorded and pods == {POOL: workers, WAITING: 1}

        await eventually("the task is recorded, and a pod is made for it", held)

    async def pods(self) -> dict[str, str]:
        """Return the names of the pods that are not being deleted, by UID."""
        pods = [raw["metadata"] for raw in await self.harness.pods()]
        return {meta["uid"]: meta["name"] for meta in pods if "deletionTimestamp" not in meta}

    async def others_than(self, name: str) -> bool:
        """Whether a replica other than `name` holds the Lease."""
        return await self.harness.leader() not in {"", name}

    def other(self, name: str) -> Replica:
        """Return the other replica."""
        return next(replica for replica in self.harness.replicas if replica.name != name)

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a replica's process."""
        os.kill(self.harness.replica(name)._pid, number)

    def step_clock(self, name: str, seconds: int) -> None:
        """Set a replica's wall clock ahead by `seconds`."""
        set_clock(self.harness.replica(name).log, seconds)

    async def term(self) -> int:
        """Return the Lease's term, as the operator sends it to workers."""
        lease = await self.harness.api.call("GET", LEASES.path(self.harness.system, LEASE)) or {}
        created = datetime.fromisoformat(lease["metadata"]["creationTimestamp"])
        return int(created.timestamp()) + int(lease["spec"]["leaseTransitions"])

    async def heard(self) -> bool:
        """Whether the present leader has answered a report of every worker."""
        term = await self.term()
        return all(worker._reports.term == term for worker in self.harness.kubelet.workers.values())

    async def settled(self) -> None:
        """Wait until a replica leads and every worker reports to it."""

        async def led_and_heard() -> bool:
            name = await self.harness.leader()
            return (
                name in self.harness.kubelet.labelled and len(self.harness.kubelet.labelled) == 1 and await self.heard()
            )

        await eventually("one replica leads, and every worker reports to it", led_and_heard)

    async def conclude(self, workers: int) -> None:
        """Finish all work: the pool grows, a worker takes the waiting task, the running task ends."""
        harness = self.harness
        harness.kubelet.may_start.set()
        await harness.change_pool(minWorkers=workers + 1)
        await eventually("one more worker is ready", lambda: ready(harness, workers + 1))
        harness.gate.set()
        await eventually("all executions have ended", lambda: "RUNNING" not in harness.outcomes().values())

        async def nothing_is_held() -> bool:
            return not await harness.records()

        await eventually("no lease record is left", nothing_is_held)


def _arn(name: str) -> str:
    return f"{ACTIVITY.rpartition(':')[0]}:{name}"


@asynccontextmanager
async def election_harness(
    cluster: FaultCluster, fork_server: ForkServer, number: str, task_seconds: int, **settings: Any
) -> AsyncIterator[ElectionHarness]:
    """Set up the harness with two running replicas; `settings` are theirs."""
    async with harness(cluster, fork_server, number, replicas=0) as made, AsyncExitStack() as stack:
        found = ElectionHarness(made, task_seconds)
        labelled = made.kubelet.labelled
        service = found.service = CutService(
            lambda: [] if service.cut else [one for one in made.replicas if one.alive and one.name in labelled]
        )
        await service.start()
        stack.push_async_callback(service.stop)
        for name in REPLICAS[:2]:
            await _join(stack, found, fork_server, name, settings)
        yield found
        for replica in made.replicas:
            await replica.stop()
        await made.api.call("DELETE", made.path(WAITING), expect=(404,))


async def _join(
    stack: AsyncExitStack, found: ElectionHarness, fork_server: ForkServer, name: str, given: dict[str, Any]
) -> None:
    """Add a replica that reaches its proxy through a road; the road starts first, closed."""
    made = found.harness
    road = found.roads[name] = await stack.enter_async_context(road_to(made.cluster.url))
    road.hang()
    url = f"http://127.0.0.1:{road.port}"
    ports = {"health_port": free_port(), "report_port": free_port()}
    settings = {"kubeconfig": str(kubeconfig(made.folder / f"{name}.road", url, name)), **ports, **given}
    set_clock(made.folder / f"{name}.log", 0)
    await _add_replica(stack, made, fork_server, name, found.service.port, settings)
    parts = urlsplit(made.proxies[-2].url)
    road._target = (parts.hostname or "", parts.port or 0)
    road.mend()
