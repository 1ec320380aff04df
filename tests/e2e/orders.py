"""The shop of the example: its database beside the cluster, a pool of runners, and a journal of what it did."""

import asyncio
import importlib
import json
import secrets
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import yaml

from activity_worker.contract import LABEL_POOL
from activity_worker.steps.store import Stored, TaskStore
from tests.cluster import catalogue, find_image, load_image, probe
from tests.e2e.executions import Executions
from tests.e2e.pool import PATIENCE, Pool
from tests.e2e.stage import RESOURCES, ROOT, SHORT, SYSTEM, Stage, wait_for
from tests.servers.postgres import PostgresServer, execute, postgres_server

EXAMPLE = ROOT / "examples" / "orders"
SECRET = "orders-store"
#: Every pod asks for its password; the test itself, on this machine, is let in.
LOGINS = "host all all 0.0.0.0/0 scram-sha-256"

#: What an order is of, and what it must have done in the world, each once and nothing else: delivered, refunded because
#: it was on no shelf, refused before anything was paid, delivered to a carrier who cannot find it.
RIGHT: dict[str, Counter[str]] = {
    "teapot": Counter(["mail: received", "captured", "packed", "mail: shipped", "mail: delivered"]),
    "samovar": Counter(["mail: received", "captured", "mail: canceled", "refunded"]),
    "anvil": Counter(["mail: received", "mail: unavailable"]),
}


@dataclass(frozen=True)
class Shop(Pool):
    """The pool of the example's runners, the orders given to it, and the journal that they write into."""

    server: PostgresServer = field(kw_only=True)
    image: str = field(kw_only=True)
    password: str = field(kw_only=True, repr=False)
    orders: dict[int, str] = field(default_factory=dict, kw_only=True)

    def url(self, database: str, *, host: str | None = None) -> str:
        """Return a database's URL as pods use it."""
        return self.server.url_of(
            "shop", password=self.password, database=database, host=host or self.stage.cluster.host_ip
        )

    def put_secret(self, url: str) -> None:
        """Make or change the Secret that the pool names."""
        probe.apply(
            self.stage.cluster,
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": SECRET, "namespace": self.namespace},
                "stringData": {"url": url},
            },
        )

    def let_operator_read(self) -> None:
        """Bind a Role with get on this one Secret to the operator, as a namespace's owner may."""
        rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [SECRET], "verbs": ["get"]}
        self._bind({"kind": "Role", "rules": [rule]})
        subject = {"kind": "ServiceAccount", "name": "activity-operator", "namespace": SYSTEM}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator-reads-store"}
        self._bind({"kind": "RoleBinding", "roleRef": reference, "subjects": [subject]})

    def apply(self, **spec: Any) -> None:
        """Apply the example's own manifest with this image, short windows, and what the spec says."""
        manifest = yaml.safe_load((EXAMPLE / "pool.yaml").read_text())
        pace = spec.pop("pace", 0.2)
        # The world is not in the store's database: what it says cannot be lost or kept with the store's.
        environment = {"ORDERS_JOURNAL": self.url("journal"), "ORDERS_PACE": str(pace)}
        container = {
            "name": "worker",
            "env": [{"name": name, "value": value} for name, value in environment.items()],
            "resources": RESOURCES,
        }
        manifest["metadata"] |= {"name": self.name, "namespace": self.namespace}
        manifest["spec"] |= {
            "handlerImage": self.image,
            "scaling": SHORT,
            "podTemplate": {"spec": {"containers": [container]}},
            **spec,
        }
        probe.apply(self.stage.cluster, manifest)

    def order(self, items: list[str]) -> None:
        """Give it orders of these."""
        asyncio.run(self._order(items))

    def instances(self) -> list[Stored]:
        """Return every instance of the store."""
        return asyncio.run(self._instances())

    def due(self) -> int:
        """Return how many instances are not complete."""
        return sum(1 for stored in self.instances() if not stored.instance.complete)

    def ready(self) -> set[str]:
        """Return the names of its pods that are Ready."""
        words = ("get", "pods", "-l", f"{LABEL_POOL}={self.name}", "-o", "json")
        pods = json.loads(self.kubectl(*words))["items"]
        wanted = {"type": "Ready", "status": "True"}
        return {
            pod["metadata"]["name"]
            for pod in pods
            if any(wanted.items() <= condition.items() for condition in pod["status"].get("conditions", ()))
            and "deletionTimestamp" not in pod["metadata"]
        }

    def lost(self) -> int:
        """Return how many calls were lost with their worker, as the history of the instances tells."""
        return asyncio.run(self._lost())

    def journal(self) -> dict[int, Counter[str]]:
        """Return what each order did in the world, and how often."""
        done: dict[int, Counter[str]] = {number: Counter() for number in self.orders}
        for line in asyncio.run(self._lines()):
            done[line["order"]][line["did"]] += 1
        return done

    def wait_for(self, what: str, holds: Any, seconds: float = PATIENCE) -> None:
        """Wait until it holds; what does not hold in time fails with what the pool, its pods and the store say."""
        try:
            wait_for(f"{self.name}: {what}", holds, seconds)
        except AssertionError as late:
            words = ("get", "pods,deployments,events", "--sort-by=.metadata.creationTimestamp")
            left = [stored.instance.status for stored in self.instances() if not stored.instance.complete]
            told = f"{json.dumps(self.status, indent=1)}\n{self.kubectl(*words)}\n{left}"
            raise AssertionError(f"{late}\n{told}") from late

    def wait_ended(self, seconds: float = PATIENCE) -> None:
        """Wait until every order has come to its end."""
        self.wait_for("every order has ended", lambda: self.due() == 0, seconds)

    def assert_all_right(self) -> None:
        """The oracle: each order did in the world what it had to, each thing once, and the store says so, too."""
        journal = self.journal()
        wrong = {number: journal[number] for number, item in self.orders.items() if journal[number] != RIGHT[item]}
        assert not wrong, {number: (self.orders[number], dict(done)) for number, done in wrong.items()}
        for stored in self.instances():
            item = self.orders[int(stored.instance.data["number"])]
            assert stored.instance.complete
            assert not stored.instance.status.running
            assert stored.instance.success, (item, stored.instance.status)

    def _bind(self, what: dict[str, Any]) -> None:
        named = {"name": "operator-reads-store", "namespace": self.namespace}
        probe.apply(self.stage.cluster, {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": named, **what})

    async def _order(self, items: list[str]) -> None:
        store = await TaskStore.open(self.url("orders", host="127.0.0.1"))
        tasks = _example().tasks
        await tasks.sync(store)
        for item in items:
            number = len(self.orders) + 1
            self.orders[number] = item
            await tasks.new(store, "order", {"number": number, "item": item})
        await store.close()

    async def _instances(self) -> list[Stored]:
        store = await TaskStore.open(self.url("orders", host="127.0.0.1"), migrate=False)
        try:
            return list(await store.listed(limit=10_000))
        finally:
            await store.close()

    async def _lost(self) -> int:
        store = await TaskStore.open(self.url("orders", host="127.0.0.1"), migrate=False)
        try:
            histories = [await store.history(one.instance.id) for one in await store.listed(limit=10_000)]
        finally:
            await store.close()
        # Who ends a call notes it under its own name; a call that another one finds running was lost.
        return sum(
            bool(before.status.get("running")) and after.runner != before.runner
            for history in histories
            for before, after in pairwise(history)
        )

    async def _lines(self) -> list[dict[str, Any]]:
        connection = await asyncpg.connect(self.url("journal", host="127.0.0.1"))
        try:
            return [json.loads(row["line"]) for row in await connection.fetch("SELECT line FROM orders_journal")]
        finally:
            await connection.close()


def _example() -> Any:
    """Return the example's module, which finds its neighbours beside it."""
    if str(EXAMPLE) not in sys.path:
        sys.path.insert(0, str(EXAMPLE))
    return importlib.import_module("orders")


@contextmanager
def a_shop(stage: Stage, namespace: str, name: str) -> Iterator[Shop]:
    """Yield a shop whose databases are on this machine, where pods reach them, and whose image is in the cluster."""
    image = find_image(catalogue.orders())
    load_image(image)
    password = secrets.token_urlsafe(12)
    with postgres_server(durable=False, logins=LOGINS, also=stage.cluster.host_ip) as server:
        asyncio.run(_users(server, password))
        nothing = Executions(None, "", "")
        yield Shop(stage, namespace, name, nothing, server=server, image=image.tag, password=password)


async def _users(server: PostgresServer, password: str) -> None:
    await execute(server.url, f"CREATE USER shop PASSWORD '{password}'")
    for database in ("orders", "journal"):
        await execute(server.url, f"CREATE DATABASE {database} OWNER shop")
