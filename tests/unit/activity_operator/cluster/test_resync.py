"""A resync: each kind once, with the loop given back in between, and what a restore of the storage changes."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from activity_operator.cluster.interfaces import WatchCheck
from activity_operator.cluster.ownership import Ownership
from activity_operator.cluster.resources import POOLS, Raw, Raws, Resource
from activity_operator.cluster.resync import Resyncer
from activity_operator.cluster.store import KINDS, Store
from activity_operator.watch.freshness import Freshness

NAME = {"namespace": "team", "name": "resize", "uid": "u1"}


class Server:
    """The API server: one pool at `version`; `listed` has the kinds that were listed."""

    def __init__(self) -> None:
        self.version = 100
        self.workers = 1
        self.listed: list[Resource] = []

    async def list(
        self, resource: Resource, *, label_selector: str = "", keep: Callable[[Raw], Raw]
    ) -> tuple[Raws, str]:
        self.listed.append(resource)
        return [keep(self.pool())] if resource == POOLS else [], str(self.version)

    def pool(self) -> Raw:
        return {"metadata": {**NAME, "resourceVersion": str(self.version)}, "spec": {"maxWorkers": self.workers}}


class Process:
    """The parts of an operator that a resync concerns."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.server = Server()
        self.store = Store(lambda key: None)
        self.freshness = Freshness(10.0, lambda: self.now)
        self.done = 0
        kube = cast("Any", self.server)
        self.resyncer = Resyncer(
            kube,
            self.store,
            cast("WatchCheck", self.freshness),
            Ownership(self.store, kube),
            every_seconds=300.0,
            clock=lambda: self.now,
            done=self._count,
        )

    def _count(self) -> None:
        self.done += 1


async def test_watch_owes_nothing_from_before_a_restore() -> None:
    process = Process()
    await process.resyncer.resync()
    process.server.version = 200
    written = process.server.pool()
    process.store.put(POOLS, written)
    process.freshness.wrote(POOLS, written)

    process.server.version = 50
    await process.resyncer.resync()
    process.freshness.delivered(POOLS, process.server.pool(), gone=False)
    process.now += 60.0
    await process.resyncer.resync()

    assert process.freshness.problem == "", "the watch is waited for with a version that is gone"
    assert process.store.pool(("team", "resize")) == process.server.pool()


async def test_list_holds_no_copy_of_an_unchanged_object() -> None:
    process = Process()
    await process.resyncer.resync()
    stored = process.store.pool(("team", "resize"))
    kept = []
    listing = process.server.list

    async def list_and_note(resource: Resource, **given: Any) -> tuple[Raws, str]:
        found, version = await listing(resource, **given)
        kept.extend(found)
        return found, version

    process.server.list = list_and_note  # type: ignore[method-assign]
    await process.resyncer.resync()

    assert kept[0] is stored


async def test_version_given_a_second_time_after_a_restore_is_read_again() -> None:
    process = Process()
    await process.resyncer.resync()
    process.store.put(POOLS, {"metadata": {**NAME, "uid": "u2", "name": "other", "resourceVersion": "200"}, "spec": {}})
    process.server.workers = 7
    await process.resyncer.resync()

    found = process.store.pool(("team", "resize"))
    assert found is not None
    assert found["spec"] == {"maxWorkers": 7}


async def test_other_tasks_run_between_the_kinds_of_a_resync() -> None:
    process = Process()
    turns = []

    async def neighbour() -> None:
        while process.done == 0:
            turns.append(len(process.server.listed))
            await asyncio.sleep(0)

    await asyncio.gather(process.resyncer.resync(), neighbour())

    assert process.server.listed == list(KINDS)
    assert len(turns) >= 2 * len(KINDS) + 1
