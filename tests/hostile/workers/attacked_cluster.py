"""The attacked cluster: three pools in two namespaces, their pods with real tokens, one operator process."""

import asyncio
import itertools
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp

from activity_operator.cluster.resources import POOLS
from activity_worker.contract import LABEL_POOL, TOKEN_AUDIENCE, lease_id
from activity_worker.testing import FakeSettings, StepFunctionsFake
from tests import manifests, measuring
from tests.eventually import eventually
from tests.faults.api import Raw
from tests.faults.fault_cluster import REPLICAS, FaultCluster, fault_cluster, kubeconfig
from tests.hostile.workers.wire import ReportAddress, say
from tests.servers.parent import die_with_parent
from tests.servers.ports import free_port

SYSTEM, TENANT, NEIGHBOUR = "system", "tenant", "neighbour"
NAME = f"activity-operator-reports.{SYSTEM}.svc"
ARN = "arn:aws:states:us-east-1:123456789012:activity:"
SPARE = "spare"
#: In the input of the task that the operator holds for the neighbour.
PAYLOAD = "payload of the neighbour"
#: The tenant's pool has attackers and one honest worker; the neighbour has one worker.
MIN_WORKERS, MAX_WORKERS = 4, 5


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, the pool that its label names, and a token that is bound to it."""

    namespace: str
    name: str
    uid: str
    pool: str
    token: str


class HonestWorker:
    """A worker without any fault that reports a few times a second during the whole session."""

    def __init__(self, address: ReportAddress, pod: Pod, *, busy: bool) -> None:
        self.pod = pod
        self.answered = 0
        self.slowest = 0.0
        self.wrong: list[str] = []
        self._address = address
        self._does: Raw = {"busy": 1, "leases": [{"id": "its own"}]} if busy else {"openPolls": 1, "idleSeconds": 60.0}

    async def run(self) -> None:
        """Report until cancelled."""
        url = f"https://127.0.0.1:{self._address.port}/v1/report"
        headers = {"Authorization": f"Bearer {self.pod.token}"}
        loop = asyncio.get_running_loop()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15.0)) as session:
            for sequence in itertools.count(1):
                began = loop.time()
                body = say(self.pod, sequence, **self._does)
                try:
                    async with session.post(
                        url, data=body, headers=headers, ssl=self._address.trust, server_hostname=NAME
                    ) as answer:
                        text = await answer.text()
                        if answer.status == 200:
                            self.answered += 1
                        else:
                            self.wrong.append(f"{answer.status}: {text}")
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    self.wrong.append(repr(error))
                self.slowest = max(self.slowest, loop.time() - began)
                await asyncio.sleep(0.25)


class AttackedCluster:
    """The attacked cluster and the state that must not change. Its coroutines run in a loop of its own."""

    def __init__(self, here: FaultCluster, fake: StepFunctionsFake) -> None:
        self.cluster = here
        self.api = here.api
        self.fake = fake
        self.process: asyncio.subprocess.Process
        self.address: ReportAddress
        #: The CA certificates that workers trust, PEM.
        self.authority = ""
        self.health_port = free_port()
        self.log = here.folder / "operator.log"
        #: The attacker's own pods; a busy worker of the attacker's own pool; a worker of another namespace.
        self.attackers: list[Pod] = []
        self.mate: HonestWorker
        self.honest: HonestWorker
        self.held_lease = ""
        self.sequence = itertools.count(1)

    @property
    def attacker(self) -> Pod:
        """The attacker's pod that stays; the other pods may report their end."""
        return self.attackers[-1]

    @property
    def pid(self) -> int:
        """The operator's process id."""
        return self.process.pid

    async def pods(self, namespace: str) -> list[Raw]:
        """Return the pods of a namespace."""
        return await self.api.items(f"/api/v1/namespaces/{namespace}/pods")

    async def pool(self, namespace: str, name: str) -> Raw:
        """Return a pool."""
        found = await self.api.call("GET", POOLS.path(namespace, name))
        assert found is not None
        return found

    async def make_pod(self, namespace: str, name: str, pool: str = "", owner: Raw | None = None) -> Pod:
        """Make a pod by hand with the label of `pool`, an owner, and a token of its own."""
        meta: Raw = {"name": name, "labels": {LABEL_POOL: pool} if pool else {}}
        if owner is not None:
            # The garbage collector deletes a pod whose owner is not in the namespace; an attacker can prevent that by a
            # finalizer.
            meta |= {"ownerReferences": [owner], "finalizers": ["hostile.example/stays"]}
        spec = {"containers": [{"name": "any", "image": "any"}], "automountServiceAccountToken": False}
        body = {"metadata": meta, "spec": spec}
        raw = await self.api.call("POST", f"/api/v1/namespaces/{namespace}/pods", body)
        assert raw is not None
        return await self.know(raw, pool)

    async def know(self, raw: Raw, pool: str) -> Pod:
        """Return a pod with a token for the operator that is bound to it."""
        meta = raw["metadata"]
        token = await self.api.token(meta["namespace"], audiences=[TOKEN_AUDIENCE], bound=raw)
        return Pod(meta["namespace"], meta["name"], meta["uid"], pool, token)

    async def metrics(self) -> str:
        """Return the operator's metrics page."""
        return await self._health("/metrics")

    async def alive(self) -> bool:
        """Whether the process runs and its liveness probe succeeds."""
        return self.process.returncode is None and await self._health("/livez") == "ok\n"

    async def _health(self, path: str) -> str:
        address = f"http://127.0.0.1:{self.health_port}{path}"
        async with aiohttp.ClientSession() as session, session.get(address) as answer:
            return await answer.text()


@asynccontextmanager
async def attacked() -> AsyncIterator[AttackedCluster]:
    """Set everything up, which takes some fifteen seconds.

    Processes, pools and folders are removed with the context.
    """
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(fault_cluster())
        fake = StepFunctionsFake(settings=FakeSettings(poll_hold_seconds=2.0))
        await stack.enter_async_context(fake)
        made = AttackedCluster(here, fake)
        await _set_up(made)
        await _start_operator(stack, made)
        tenant, neighbour = await _workers(made, TENANT, MIN_WORKERS), await _workers(made, NEIGHBOUR, 1)
        made.attackers, mate = tenant[:-1], tenant[-1]
        made.mate, made.honest = (
            HonestWorker(made.address, mate, busy=True),
            HonestWorker(made.address, neighbour[0], busy=False),
        )
        for one in (made.mate, made.honest):
            stack.push_async_callback(_ended, asyncio.create_task(one.run()))
        await eventually("honest workers are answered", lambda: bool(made.mate.answered and made.honest.answered))
        made.mate.wrong.clear()
        made.honest.wrong.clear()
        await _hold_a_lease(made)
        yield made


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _set_up(made: AttackedCluster) -> None:
    for namespace in (SYSTEM, TENANT, NEIGHBOUR):
        await made.api.make_namespace(namespace)
    for namespace, name, low in ((TENANT, TENANT, MIN_WORKERS), (NEIGHBOUR, NEIGHBOUR, 1), (NEIGHBOUR, SPARE, 0)):
        made.fake.create_activity(f"{namespace}-{name}")
        spec = {
            "activityArn": f"{ARN}{namespace}-{name}",
            "handlerImage": "registry.invalid/handler:1",
            "minWorkers": low,
            "maxWorkers": MAX_WORKERS if low else 1,
            # The neighbours must not change by themselves while an attack runs.
            "scaling": {"scaleDown": {"stabilizationWindowSeconds": 3600, "zeroAfterSeconds": 86_400}},
        }
        await made.api.call("POST", POOLS.path(namespace), manifests.pool(name, spec))


async def _start_operator(stack: AsyncExitStack, made: AttackedCluster) -> None:
    """Start the operator with text logs, in which a line that an attacker broke would show.

    It runs as it ships, except for a longer Lease: the only replica, on a flooded machine, may renew late.
    """
    folder = made.cluster.folder
    pod = {"containers": [{"name": "operator", "image": "played"}], "automountServiceAccountToken": False}
    body = {"metadata": {"name": "operator-a"}, "spec": pod}
    await made.api.call("POST", f"/api/v1/namespaces/{SYSTEM}/pods", body)
    config = kubeconfig(folder / "operator.kubeconfig", made.cluster.url, REPLICAS[0], folder / "ca.crt")
    port = free_port()
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "AWS_ENDPOINT_URL_SFN": made.fake.url,
        "AWS_ACCESS_KEY_ID": "operator",
        "AWS_SECRET_ACCESS_KEY": "none",
        "POD_NAMESPACE": SYSTEM,
        "POD_NAME": "operator-a",
        "KUBECONFIG": str(config),
        "ACTIVITYPOOL_HEALTH_HOST": "127.0.0.1",
        "ACTIVITYPOOL_HEALTH_PORT": str(made.health_port),
        "ACTIVITYPOOL_REPORT_HOST": "127.0.0.1",
        "ACTIVITYPOOL_REPORT_PORT": str(port),
        "ACTIVITYPOOL_LEASE_DURATION_SECONDS": "60",
        "ACTIVITYPOOL_LEASE_RENEW_DEADLINE_SECONDS": "50",
        "ACTIVITYPOOL_STOP_SECONDS": "1",
        "ACTIVITYPOOL_LOG_FORMAT": "text",
        **measuring.environment(),
    }
    out = stack.enter_context(made.log.open("wb"))
    made.process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "activity_operator", env=env, cwd=folder, stdout=out, stderr=out,
        preexec_fn=die_with_parent,
    )  # fmt: skip
    stack.push_async_callback(_killed, made.process)
    bundle = f"/api/v1/namespaces/{TENANT}/configmaps/activitypool-ca"
    found: list[Raw] = []

    async def trusted() -> bool:
        raw = await made.api.call("GET", bundle, expect=(404,))
        found[:] = [raw] if raw else []
        return bool(found)

    await eventually("the operator has a certificate", trusted)
    made.authority = found[0]["data"]["ca.crt"]
    trust = ssl.create_default_context(cadata=made.authority)
    made.address = ReportAddress(port, NAME, trust)


async def _killed(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def _workers(made: AttackedCluster, namespace: str, count: int) -> list[Pod]:
    """Wait for the pods of the pool with the namespace's name, and mark them as running."""
    found: list[Raw] = []

    async def came() -> bool:
        found[:] = [raw for raw in await made.pods(namespace) if raw["metadata"]["labels"][LABEL_POOL] == namespace]
        return len(found) >= count

    await eventually(f"pods of {namespace} are made", came)
    for raw in found:
        await _run(made, raw)
    return [await made.know(raw, namespace) for raw in found]


async def _run(made: AttackedCluster, raw: Raw) -> None:
    meta = raw["metadata"]
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
    target = {"apiVersion": "v1", "kind": "Node", "name": "played"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]}, "target": target}
    await made.api.call("POST", f"{path}/binding", body)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    container = {
        "name": raw["spec"]["containers"][0]["name"], "image": "played", "imageID": "", "ready": True,
        "restartCount": 0, "state": {"running": {"startedAt": now}},
    }  # fmt: skip
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in ("PodScheduled", "Ready")]
    status = {"phase": "Running", "startTime": now, "conditions": conditions, "containerStatuses": [container]}
    await made.api.call("PATCH", f"{path}/status", {"status": status})


async def _hold_a_lease(made: AttackedCluster) -> None:
    """Start a task for a pool without workers, so that the operator holds a lease that the attacker may want."""
    made.fake.schedule(f"{ARN}{NEIGHBOUR}-{SPARE}", json.dumps({"secret": PAYLOAD}), heartbeat_seconds=600.0)
    records = f"/api/v1/namespaces/{SYSTEM}/secrets"

    async def held() -> bool:
        names = [raw["metadata"]["name"] for raw in await made.api.items(records)]
        leases = [name.removeprefix("lease-") for name in names if name.startswith("lease-")]
        made.held_lease = leases[0] if leases else ""
        return bool(leases)

    await eventually("a task is held", held)
    assert made.held_lease == lease_id(made.fake.tasks[-1].token)
