"""The shop of the example: its database beside the cluster, a pool of runners, and a journal of the orders' effects."""

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

from activity_worker.steps.store.rows import Revision, StoredInstance
from activity_worker.steps.store.task_store import TaskStore
from tests.cluster import catalogue, find_image, load_image
from tests.e2e.harness import RESOURCES, ROOT, SHORT, ClusterHarness
from tests.e2e.secret_pool import SecretPool
from tests.e2e.timeline import PATIENCE
from tests.servers.postgres import PostgresServer, execute, postgres_server

EXAMPLE = ROOT / "examples" / "orders"
SECRET = "orders-store"
#: Every pod must use its password; the test on this machine need not.
LOGINS = "host all all 0.0.0.0/0 scram-sha-256"

#: item -> the effects that an order of it must have, each exactly once. A teapot is delivered. A samovar is refunded,
#: because it is out of stock. An anvil is refused before the payment.
RIGHT: dict[str, Counter[str]] = {
    "teapot": Counter(["mail: received", "captured", "packed", "mail: shipped", "mail: delivered"]),
    "samovar": Counter(["mail: received", "captured", "mail: canceled", "refunded"]),
    "anvil": Counter(["mail: received", "mail: unavailable"]),
}


@dataclass(eq=False)
class OrdersPool(SecretPool):
    """The pool of the example's runners, its orders (number -> item), and the journal of their effects."""

    server: PostgresServer = field(kw_only=True)
    image: str = field(kw_only=True)
    password: str = field(kw_only=True, repr=False)
    orders: dict[int, str] = field(default_factory=dict, kw_only=True)

    def url(self, database: str, *, host: str | None = None) -> str:
        """Return a database's URL as pods use it."""
        return self.server.url_of(
            "shop", password=self.password, database=database, host=host or self.harness.cluster.host_ip
        )

    def apply(self, **spec: Any) -> None:
        """Apply the example's own manifest with this image, short windows, and what the spec says."""
        manifest = yaml.safe_load((EXAMPLE / "pool.yaml").read_text())
        pace = spec.pop("pace", 0.2)
        # The journal has a database of its own, so that no rollback of the store undoes the effects, too.
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
        self.apply_manifest(manifest)

    def order(self, items: list[str]) -> None:
        """Place an order of each of these items; moves the mark."""
        self.act()
        asyncio.run(self._order(items))

    def instances(self) -> list[StoredInstance]:
        """Return every instance of the store."""
        return [stored for stored, _ in asyncio.run(self._stored())]

    def incomplete(self) -> list[StoredInstance]:
        """Return the instances that are not complete."""
        return [stored for stored in self.instances() if not stored.instance.complete]

    def lost_calls(self) -> int:
        """Return how many calls were lost with their worker, by the histories of the instances."""
        # The worker that ends a call records its own name; a running call that another worker finds was lost.
        return sum(
            bool(before.status.get("running")) and after.runner != before.runner
            for _, history in asyncio.run(self._stored(histories=True))
            for before, after in pairwise(history)
        )

    def journal(self) -> dict[int, Counter[str]]:
        """Return the effects of each order, with their counts."""
        done: dict[int, Counter[str]] = {number: Counter() for number in self.orders}
        for line in asyncio.run(self._lines()):
            done[line["order"]][line["did"]] += 1
        return done

    def task_story(self) -> str:
        """Return the status of every incomplete instance, one on each line."""
        return "\n".join(str(stored.instance.status) for stored in self.incomplete())

    def wait_ended(self, seconds: float = PATIENCE) -> None:
        """Wait until every order has ended; move the mark to that moment."""
        self.wait_source("every order has ended", lambda: not self.incomplete(), seconds)
        self.mark = self.timeline.catch_up()

    def assert_all_right(self) -> None:
        """Assert that each order had its effects exactly once, and that the store agrees."""
        journal = self.journal()
        wrong = {number: journal[number] for number, item in self.orders.items() if journal[number] != RIGHT[item]}
        assert not wrong, {number: (self.orders[number], dict(done)) for number, done in wrong.items()}
        for stored in self.instances():
            item = self.orders[int(stored.instance.data["number"])]
            assert stored.instance.complete
            assert not stored.instance.status.running
            assert stored.instance.success, (item, stored.instance.status)

    async def _order(self, items: list[str]) -> None:
        store = await TaskStore.open(self.url("orders", host="127.0.0.1"))
        tasks = _example().tasks
        await tasks.sync(store)
        for item in items:
            number = len(self.orders) + 1
            self.orders[number] = item
            await tasks.new(store, "order", {"number": number, "item": item})
        await store.close()

    async def _stored(self, *, histories: bool = False) -> list[tuple[StoredInstance, list[Revision]]]:
        """Return every instance, with its history if `histories` is set."""
        store = await TaskStore.open(self.url("orders", host="127.0.0.1"), migrate=False)
        try:
            found = await store.listed(limit=10_000)
            return [(one, list(await store.history(one.instance.id)) if histories else []) for one in found]
        finally:
            await store.close()

    async def _lines(self) -> list[dict[str, Any]]:
        connection = await asyncpg.connect(self.url("journal", host="127.0.0.1"))
        try:
            return [json.loads(row["line"]) for row in await connection.fetch("SELECT line FROM orders_journal")]
        finally:
            await connection.close()


def _example() -> Any:
    """Return the example's module, which imports modules of its own folder."""
    if str(EXAMPLE) not in sys.path:
        sys.path.insert(0, str(EXAMPLE))
    return importlib.import_module("orders")


@contextmanager
def an_orders_pool(harness: ClusterHarness, namespace: str, name: str) -> Iterator[OrdersPool]:
    """Yield a shop whose databases on this machine are reachable for pods, and whose image is in the cluster."""
    image = find_image(catalogue.example("orders"))
    load_image(image)
    password = secrets.token_urlsafe(12)
    with postgres_server(durable=False, logins=LOGINS, also=harness.cluster.host_ip) as server:
        asyncio.run(_create_databases(server, password))
        yield OrdersPool(harness, namespace, name, secret=SECRET, server=server, image=image.tag, password=password)


async def _create_databases(server: PostgresServer, password: str) -> None:
    await execute(server.url, f"CREATE USER shop PASSWORD '{password}'")
    for database in ("orders", "journal"):
        await execute(server.url, f"CREATE DATABASE {database} OWNER shop")
