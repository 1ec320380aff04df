"""What one run needs: two namespaces, operators behind their proxies, the task service, and a simulated node."""

import asyncio
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from activity_operator.cluster.resources import LEASES, POOLS
from activity_worker.contract import lease_id
from activity_worker.testing import FakeSettings, StepFunctionsFake, SwfFake
from tests import manifests
from tests.faults import audit, clock_wall
from tests.faults.api import Raw
from tests.faults.calls import POLLS, WORKER, Call
from tests.faults.fault_cluster import REPLICAS, FaultCluster, kubeconfig
from tests.faults.kubelet import Kubelet
from tests.faults.plan import Fault, Plan
from tests.faults.proxy import Proxy
from tests.faults.replicas import ELECTION, ForkServer, Replica, Service
from tests.servers.ports import free_port

POOL = "resize"
LEASE = "activity-operator"
#: Seconds that the service holds a poll, and a task's HeartbeatSeconds, after which a lost task is retried. A dead
#: leader's successor needs six of them on a quiet machine; on a busy one it may lose the Lease once more.
HOLD_SECONDS, TASK_SECONDS = 1.0, 20
#: HeartbeatSeconds where there are two replicas, whose Lease is longer.
SHARED_TASK_SECONDS = 24
#: In the input of every task. It may appear only in the service and in lease records.
PAYLOAD = "words-of-a-payload"
ACTIVITY = "arn:aws:states:us-east-1:123456789012:activity:resize"


class Attempt(Protocol):
    """One task that the service gave out or waits to give out. `conclusions` are those that the service accepted."""

    @property
    def token(self) -> str:
        """The token that a poll returns."""
        ...

    @property
    def state(self) -> str:
        """What became of it; `timed_out` is one state."""
        ...

    @property
    def error(self) -> str:
        """Which time-out ended it."""
        ...

    @property
    def conclusions(self) -> int:
        """The answers that the service accepted."""
        ...

    @property
    def heartbeats(self) -> int:
        """The task heartbeats so far."""
        ...


class FaultHarness:
    """The harness of the scenarios, made by `harness`, which calls the hooks `activities`, `reached` and `plan_of`."""

    #: The names of the activities that the task service has from the start.
    activities: Sequence[str] = (POOL,)

    def __init__(self, cluster: FaultCluster, number: str, folder: Path) -> None:
        self.cluster = cluster
        self.api = cluster.api
        self.namespace, self.system = f"pools-{number}", f"system-{number}"
        self.folder = folder
        self.plan = Plan()
        self.fake = StepFunctionsFake(settings=FakeSettings(poll_hold_seconds=HOLD_SECONDS))
        self.replicas: list[Replica] = []
        #: Each replica's proxies, to the API server and to the task service, and the workers' proxy to the latter.
        self.proxies: list[Proxy] = []
        self.service: Proxy | None = None
        #: The operator's Service, to which workers report.
        self.report_service: Service
        self.ran: Counter[str] = Counter()
        self.recorded: set[str] = set()
        #: Each task that a poll returned: who had opened the poll (a replica or WORKER), and when the task was
        #: returned.
        self.handed: dict[str, tuple[str, float]] = {}
        #: The HeartbeatSeconds of new tasks.
        self.task_seconds = TASK_SECONDS
        #: Extra seconds for the run to end, where two leaders die or a poll is never answered.
        self.more_seconds = 0.0
        self.gate = asyncio.Event()
        self.executions: dict[str, str] = {}
        self.kubelet = Kubelet(self.api, self.namespace, self.system, folder, self.fake, self.handle)

    @property
    def task_service(self) -> StepFunctionsFake | SwfFake:
        """The service that the operator and the workers call."""
        return self.fake

    async def close(self) -> None:
        """End what the harness itself runs."""

    def misclosed(self) -> list[str]:
        """Return each task that the service's own history does not close exactly once."""
        return []

    def reached(self) -> list[Replica]:
        """Return the replicas that workers' reports reach: those that run and have the leader's label."""
        return [one for one in self.replicas if one.alive and one.name in self.kubelet.labelled]

    def plan_of(self, caller: str) -> Plan:
        """Return the faults of a caller's proxies; `caller` is a replica's name or WORKER."""
        return self.plan

    def take(self, faults: tuple[Fault, ...]) -> None:
        """Plan these faults for the calls after `plan.arm`."""
        self.plan = Plan(faults)
        for proxy in filter(None, (*self.proxies, self.service)):
            proxy.plan = self.plan

    def heard(self, caller: str, call: Call, status: int, content: bytes, passed: bool) -> None:
        """Note the tasks that an answer brought to a caller, if it was passed on, and the recorded leases."""
        if passed and call.name.endswith(POLLS) and (token := json.loads(content).get("taskToken")):
            self.handed[lease_id(token)] = (caller, time.monotonic())
        if call.name == "POST lease-records" and status < 300:
            self.recorded.add(str(json.loads(content)["metadata"]["name"]).removeprefix("lease-"))

    async def handle(self, request: Any) -> Any:
        """Run a task as its input says: at once, or when the gate opens; it may fail."""
        self.ran[request.lease_id] += 1
        if request.input.get("gated"):
            await self.gate.wait()
        if request.input.get("fails"):
            raise ValueError(f"a task that fails, with {PAYLOAD} in its words")
        return {"done": request.input["number"]}

    def path(self, name: str = "") -> str:
        """Return the URL path of a pool."""
        return POOLS.path(self.namespace, name)

    async def create_pool(self, **spec: Any) -> None:
        """Make the pool; fields that are not given have short times or their defaults, None leaves a field out."""
        down = {"stabilizationWindowSeconds": 1, "zeroAfterSeconds": 3600} | spec.pop("down", {})
        spec = {
            "activityArn": ACTIVITY,
            "handlerImage": "registry.invalid/handler:1",
            "maxWorkers": 3,
            "taskHeartbeat": {"intervalSeconds": 1},
            "scaling": {"scaleDown": down},
            **spec,
        }
        given = {name: value for name, value in spec.items() if value is not None}
        await self.api.call("POST", self.path(), manifests.pool(POOL, given))

    async def change_pool(self, **spec: Any) -> None:
        """Merge into the pool's spec."""
        await self.api.call("PATCH", self.path(POOL), {"spec": spec})

    async def pool(self) -> Raw | None:
        """Return the pool."""
        return await self.api.call("GET", self.path(POOL), expect=(404,))

    async def pods(self) -> list[Raw]:
        """Return the pool's pods."""
        return await self.api.items(f"/api/v1/namespaces/{self.namespace}/pods")

    async def deployments(self) -> list[Raw]:
        """Return the pool's Deployments."""
        return await self.api.items(f"/apis/apps/v1/namespaces/{self.namespace}/deployments")

    async def records(self) -> list[Raw]:
        """Return the lease records."""
        found = await self.api.items(f"/api/v1/namespaces/{self.system}/secrets")
        return [raw for raw in found if raw["metadata"]["name"].startswith("lease-")]

    async def leader(self) -> str:
        """Return the name of the replica that holds the Lease, "" if none does."""
        lease = await self.api.call("GET", LEASES.path(self.system, LEASE), expect=(404,))
        holder = ((lease or {}).get("spec") or {}).get("holderIdentity") or ""
        return str(holder).rpartition("_")[0]

    async def changes_of_leader(self) -> int:
        """Return how often the Lease has changed hands."""
        lease = await self.api.call("GET", LEASES.path(self.system, LEASE)) or {}
        return int(lease["spec"].get("leaseTransitions") or 0)

    def former_leader_writes(self) -> list[str]:
        """Return each write, by the audit log, that took effect while its replica did not hold the Lease."""
        writes = audit.writers(self.cluster.folder, (self.namespace, self.system))
        return audit.former_leader_writes(writes, self.system, LEASE, REPLICAS)

    def replica(self, name: str) -> Replica:
        """Return a replica by name."""
        return next(replica for replica in self.replicas if replica.name == name)

    def execute(self, count: int = 1, **task: Any) -> None:
        """Start executions of one task each; lost attempts are retried."""
        for _ in range(count):
            name = f"e{len(self.executions) + 1}"
            given = json.dumps({"number": name, "secret": PAYLOAD, **task})
            machine = self.fake._executions.start(self._machine(), name, given)
            self.executions[name] = machine.arn

    def outcomes(self) -> dict[str, str]:
        """Return each execution's status, with its error."""
        found = {name: self.fake._executions.execution(arn) for name, arn in self.executions.items()}
        return {name: ": ".join(filter(None, (run.status, run.error))) for name, run in found.items()}

    def open_polls(self) -> int:
        """Return how many polls wait at the service, the workers' polls included."""
        return self.fake.open_polls(ACTIVITY)

    def tasks(self) -> Sequence[Attempt]:
        """Return every attempt so far."""
        return self.fake.tasks

    def _machine(self) -> str:
        arn = ACTIVITY.replace(":activity:", ":stateMachine:")
        retry = [{"ErrorEquals": ["States.Timeout"], "IntervalSeconds": 1, "MaxAttempts": 5, "BackoffRate": 1.0}]
        state = {
            "Type": "Task",
            "Resource": ACTIVITY,
            "HeartbeatSeconds": self.task_seconds,
            "Retry": retry,
            "End": True,
        }
        definition = json.dumps({"StartAt": "Work", "States": {"Work": state}})
        return self.fake._executions.create_machine(arn, "resize", definition).arn


S = TypeVar("S", bound=FaultHarness)


@asynccontextmanager
async def harness(
    cluster: FaultCluster, fork_server: ForkServer, number: str, replicas: int = 1, **settings: float
) -> AsyncIterator[FaultHarness]:
    """Set up a harness with running operators; `settings` are theirs. Processes and pool end with the context."""
    async with whole_harness_of(FaultHarness, cluster, fork_server, number, replicas, **settings) as made:
        yield made


@asynccontextmanager
async def whole_harness_of(
    kind: type[S], cluster: FaultCluster, fork_server: ForkServer, number: str, replicas: int, **settings: float
) -> AsyncIterator[S]:
    """Set up a harness of a given class with running operators. Processes and pool end with the context."""
    async with harness_of(kind, cluster, fork_server, number, replicas, **settings) as made:
        yield made
        for replica in made.replicas:
            await replica.stop()
        await made.api.call("DELETE", made.path(POOL), expect=(404,))


@asynccontextmanager
async def harness_of(
    kind: type[S], cluster: FaultCluster, fork_server: ForkServer, number: str, replicas: int, **settings: float
) -> AsyncIterator[S]:
    """Set up a harness of a given class with running operators. Processes end with the context."""
    folder = cluster.folder / number
    folder.mkdir()
    audit.begin(cluster.folder)
    made = kind(cluster, number, folder)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(made.task_service)
        stack.push_async_callback(made.close)
        for activity in made.activities:
            made.fake.create_activity(activity)
        await _set_up(made)
        kubelet = made.kubelet
        made.service = kubelet.service = await _proxy(stack, made, WORKER, made.task_service.url, caller=WORKER)
        playing = asyncio.create_task(kubelet.run())
        stack.push_async_callback(_ended, playing)
        stack.push_async_callback(kubelet.stop)
        made.report_service = service = Service(made.reached)
        await service.start()
        stack.push_async_callback(service.stop)
        for name in REPLICAS[:replicas]:
            await _add_replica(stack, made, fork_server, name, service.port, settings)
        yield made


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _set_up(made: FaultHarness) -> None:
    """Make the namespaces, the ServiceAccounts of the pods, and the replicas' own pods."""
    for name in (made.namespace, made.system):
        await made.api.make_namespace(name)
    policy = {"rules": [{"namespaces": ["*"], "endpointUrls": ["*"]}]}
    (made.folder / "tenancy.json").write_text(json.dumps(policy))
    os.environ.update(AWS_ACCESS_KEY_ID="worker", AWS_SECRET_ACCESS_KEY="none")  # for the workers in this process


async def _proxy(
    stack: AsyncExitStack, made: FaultHarness, who: str, upstream: str, *trust: Any, **given: Any
) -> Proxy:
    """Put a proxy before a server, for a replica or for the workers."""
    proxy = Proxy(upstream, lambda: made.replica(who), *trust, **given)
    proxy.plan, proxy.heard = made.plan_of(who), partial(made.heard, who)
    await proxy.start()
    stack.push_async_callback(proxy.stop)
    return proxy


async def _add_replica(
    stack: AsyncExitStack,
    made: FaultHarness,
    fork_server: ForkServer,
    name: str,
    service_port: int,
    given: Mapping[str, float],
) -> None:
    spec = {"containers": [{"name": "operator", "image": "played"}], "automountServiceAccountToken": False}
    body = {"metadata": {"name": name}, "spec": spec}
    await made.api.call("POST", f"/api/v1/namespaces/{made.system}/pods", body, expect=(409,))

    config = made.folder / f"{name}.kubeconfig"

    renewed = itertools.cycle((True, False))

    def rotate() -> None:
        kubeconfig(config, kube.url, name, renewed=next(renewed))

    kube = await _proxy(stack, made, name, made.cluster.url, made.cluster.trust, rotate=rotate)
    aws = await _proxy(stack, made, name, made.task_service.url)
    made.proxies += [kube, aws]
    settings = {
        **ELECTION,
        "namespace": made.system,
        "pod_name": name,
        "kubeconfig": str(kubeconfig(config, kube.url, name)),
        "health_host": "127.0.0.1",
        "health_port": free_port(),
        "report_host": "127.0.0.1",
        "report_port": free_port(),
        "report_service_port": service_port,
        "tenancy_file": str(made.folder / "tenancy.json"),
        "stop_seconds": 5.0,
        "log_format": "text",
        **given,
    }
    log = made.folder / f"{name}.log"
    env = {
        "AWS_ENDPOINT_URL_SFN": aws.url,
        "AWS_ENDPOINT_URL_SWF": aws.url,
        "AWS_ACCESS_KEY_ID": name,
        clock_wall.FILE: str(clock_wall.clock_file(log)),
    }
    replica = Replica(fork_server, name, settings, env, log)
    made.replicas.append(replica)
    replica.start()
    stack.push_async_callback(replica.stop)
