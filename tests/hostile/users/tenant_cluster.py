"""A control plane, an operator as it ships, an honest pool at work, and namespaces for the other pools."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from activity_operator.cluster.json_depth import DepthLimitedDecoder
from activity_operator.cluster.resources import DEPLOYMENTS, EVENTS, POOLS
from tests.eventually import eventually
from tests.faults.api import CALL_SECONDS, Raw
from tests.faults.fault_cluster import TOKENS, FaultCluster, fault_cluster, kubeconfig
from tests.faults.harness import FaultHarness, harness
from tests.faults.replicas import fork_server
from tests.manifests import pool

#: Calls to the API server in flight at once.
SIDE_BY_SIDE = 16
#: Seconds within which every pool's status must be settled, on a slow machine.
SETTLED_SECONDS = 240.0
#: Writes that continue at rest: the election's, and TokenReviews of the honest pool's workers.
_AT_REST = {"leases", "tokenreviews"}


@dataclass(frozen=True, slots=True)
class Answer:
    """The API server's answer to one pool."""

    status: int
    body: Raw

    @property
    def accepted(self) -> bool:
        """Whether it is stored."""
        return self.status < 300

    @property
    def message(self) -> str:
        """The server's message, "" if it gave none."""
        return str(self.body.get("message", ""))

    @property
    def fields(self) -> list[str]:
        """The fields that the server's answer names."""
        causes = (self.body.get("details") or {}).get("causes") or ()
        return [str(cause.get("field", "")) for cause in causes]


class TenantCluster:
    """A cluster with the operator, for tests of hostile users. Made by `tenants`."""

    def __init__(self, made: FaultHarness, session: aiohttp.ClientSession) -> None:
        self.harness = made
        self.api = made.api
        self.namespaces = {made.namespace}
        self._session = session
        self._turn = asyncio.Semaphore(SIDE_BY_SIDE)

    async def namespace(self, name: str, level: str = "restricted") -> str:
        """Make a namespace with this Pod Security level, and its default ServiceAccount; return its name."""
        self.namespaces.add(name)
        await self.api.make_namespace(name, {"pod-security.kubernetes.io/enforce": level})
        return name

    async def send(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Answer:
        """Call the API server and return its answer, whatever it is. A `body` of bytes is sent unchanged."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        timeout = aiohttp.ClientTimeout(total=6 * CALL_SECONDS)
        async with (
            self._turn,
            self._session.request(method, path, data=data, headers={"Content-Type": kind}, timeout=timeout) as answer,
        ):
            content = await answer.read()
            try:
                found = json.loads(content, cls=DepthLimitedDecoder)
            except ValueError:
                found = {"message": content[:500].decode(errors="replace")}
            return Answer(answer.status, found)

    async def create(self, namespace: str, name: str, spec: Any) -> Answer:
        """Create a pool."""
        return await self.send("POST", POOLS.path(namespace), pool(name, spec))

    async def replace(self, namespace: str, name: str, spec: Any) -> Answer:
        """Replace a pool's spec; repeat that if the operator has written the pool since it was read."""

        async def put() -> Answer | None:
            found = await self.pool(namespace, name)
            answer = await self.send("PUT", POOLS.path(namespace, name), {**found, "spec": spec})
            return None if answer.status == 409 else answer

        return await eventually(f"pool {name} is replaced or refused", put)

    async def pool(self, namespace: str, name: str) -> Raw:
        """Return a pool, which must exist."""
        answer = await self.send("GET", POOLS.path(namespace, name))
        assert answer.status == 200, answer.message
        return answer.body

    async def pools(self, namespace: str) -> dict[str, Raw]:
        """Return a namespace's pools by name."""
        answer = await self.send("GET", POOLS.path(namespace))
        return {raw["metadata"]["name"]: raw for raw in answer.body["items"]}

    async def deployments(self, namespace: str) -> list[Raw]:
        """Return a namespace's Deployments."""
        return await self.api.items(DEPLOYMENTS.path(namespace))

    async def events(self, namespace: str) -> list[Raw]:
        """Return the Events of a namespace's pools."""
        return await self.api.items(EVENTS.path(namespace))

    async def settled(self, namespace: str, names: Iterable[str], seconds: float = SETTLED_SECONDS) -> dict[str, Raw]:
        """Wait until each pool's status is of its generation and has a Ready condition; return the pools.

        Raises NotInTimeError that names the pools without such a status.
        """
        wanted, silent, found = set(names), set[str](), dict[str, Raw]()

        async def settled_all() -> bool:
            nonlocal found
            found = await self.pools(namespace)
            silent.clear()
            silent.update(name for name in wanted if not spoken_of(found[name]))
            return not silent

        def without() -> str:
            specs = json.dumps({name: found[name]["spec"] for name in sorted(silent)[:3]})[:3000]
            return f"no status of {sorted(silent)}: {specs}\n{self.troubles()}"

        await eventually("every pool has a status", settled_all, seconds=seconds, every_seconds=0.3, details=without)
        return {name: found[name] for name in wanted}

    async def writes_within(self, seconds: float) -> Counter[str]:
        """Return the operator's writes in that time, without those that continue at rest."""
        before = await self._writes()
        await asyncio.sleep(seconds)
        return (await self._writes()) - before

    async def metrics(self) -> str:
        """Return the operator's metrics page."""
        settings: Any = self.harness.replicas[0]._asked["settings"]
        url = f"http://127.0.0.1:{settings['health_port']}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return await answer.text()

    async def _writes(self) -> Counter[str]:
        found = Counter[str]()
        for family in text_string_to_metric_families(await self.metrics()):
            for sample in family.samples:
                verb, _, kind = sample.labels.get("operation", "").partition(" ")
                if sample.labels.get("backend") == "kubernetes" and verb != "get" and kind not in _AT_REST:
                    found[f"{verb} {kind}"] += int(sample.value)
        return found

    def log(self) -> str:
        """Return the operator's log so far."""
        return "".join(replica.log.read_text(errors="replace") for replica in self.harness.replicas)

    def troubles(self) -> str:
        """Return the exceptions in the log, and how often the operator ended."""
        log = self.log()
        ends = sum(replica.ended for replica in self.harness.replicas)
        found = "Traceback" in log or '"error"' in log
        return (f"the operator ended {ends} times\n" if ends else "") + (log[-6000:] if found else "")

    def policy(self, *rules: Raw) -> None:
        """Write the tenancy policy; the operator reads it again by itself."""
        file = self.harness.folder / "tenancy.json"
        file.write_text(json.dumps({"rules": list(rules)}))

    async def honest_work(self, tasks: int = 2) -> None:
        """Give the honest pool some tasks; raises NotInTimeError when it does not finish them."""
        before = len(self.harness.executions)
        self.harness.execute(tasks)

        def done() -> bool:
            outcomes = self.harness.outcomes()
            return all(outcomes[f"e{number}"] == "SUCCEEDED" for number in range(before + 1, before + tasks + 1))

        await eventually("the honest pool does its tasks", done, seconds=SETTLED_SECONDS)


def spoken_of(raw: Raw) -> bool:
    """Whether a pool's status, including every condition, is of its generation."""
    status, generation = raw.get("status") or {}, raw["metadata"]["generation"]
    conditions = status.get("conditions") or ()
    ready = condition(raw)
    return bool(
        status.get("observedGeneration") == generation
        and conditions
        and all(one.get("observedGeneration") == generation for one in conditions)
        # "Pending" (the first Deployment is being made) is no result yet.
        and ready.get("reason") != "Pending"
    )


def condition(raw: Raw, kind: str = "Ready") -> Raw:
    """Return one of a pool's conditions, {} if it has none of that type."""
    found = (raw.get("status") or {}).get("conditions") or ()
    return next((dict(one) for one in found if one["type"] == kind), {})


@asynccontextmanager
async def tenants(number: str = "users", log_format: Any = "json") -> AsyncIterator[TenantCluster]:
    """Set the cluster up; the honest pool is at work when this returns."""
    async with AsyncExitStack() as stack:
        here: FaultCluster = await stack.enter_async_context(fault_cluster())
        # No call may leave this machine, whatever role or service a pool names.
        nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
        forks = await stack.enter_async_context(
            fork_server(here.folder, "tests.hostile.users.forked_operators", **nowhere)
        )
        session = aiohttp.ClientSession(
            here.url,
            headers={"Authorization": f"Bearer {TOKENS['test']}"},
            connector=aiohttp.TCPConnector(ssl=here.trust, limit=0),
        )
        stack.push_async_callback(session.close)
        made = await stack.enter_async_context(harness(here, forks, number, log_format=log_format))
        found = TenantCluster(made, session)
        # The API server is reached without the fault proxy, which parses every call and is too slow for this.
        name = made.replicas[0].name
        kubeconfig(made.folder / f"{name}.kubeconfig", here.url, name, here.folder / "ca.crt")
        made.replicas[0].kill()
        await made.create_pool(minWorkers=1)
        await found.honest_work(1)
        yield found
