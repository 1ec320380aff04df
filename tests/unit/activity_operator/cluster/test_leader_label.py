"""The leader's label: workers reach who leads, whatever a former leader or a person writes; at rest it costs reads."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, cast

from activity_operator.cluster import fence
from activity_operator.cluster.kube import ApiError, ApiUnreachableError, KubeClient
from activity_operator.cluster.leader_label import LOOK_SECONDS, RETRY_SECONDS, LeaderLabel
from activity_worker.contract import LABEL_LEADER
from tests.unit.activity_operator.virtual_time import VirtualLoop, elapsed, settle

ANY = cast("Any", None)


class Pods:
    """The operator's pods that have the label, each with its resourceVersion."""

    def __init__(self, *labelled: str) -> None:
        self.versions = dict.fromkeys(("a", "b", "hung"), 1)
        self.labelled = set(labelled)
        self.reads = self.writes = 0
        self.down = False

    def write(self, name: str, *, labelled: bool) -> None:
        """Set or remove a label, as anybody may."""
        self.versions[name] += 1
        (self.labelled.add if labelled else self.labelled.discard)(name)


class Road:
    """One process's way to the pods. Where it is `stopped`, a write goes on when `woken` is set."""

    def __init__(self, pods: Pods) -> None:
        self.pods = pods
        self.stops_before_leave = self.stops_after_leave = ""
        self.stopped, self.woken = asyncio.Event(), asyncio.Event()

    async def list(self, kind: object, namespace: str, selector: str) -> tuple[list[dict[str, Any]], str]:
        self.pods.reads += 1
        if self.pods.down:
            raise ApiUnreachableError("down")
        versions = self.pods.versions
        found = [
            {"metadata": {"name": name, "resourceVersion": str(versions[name])}} for name in sorted(self.pods.labelled)
        ]
        return found, "1"

    async def merge_patch(self, kind: object, namespace: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        await self._stop(at=self.stops_before_leave == name)
        await fence._ask(ANY, ANY, ANY)
        await self._stop(at=self.stops_after_leave == name)
        self.pods.writes += 1
        wanted = body["metadata"].get("resourceVersion")
        if wanted not in (None, str(self.pods.versions[name])):
            raise ApiError(409, "Conflict", "changed")
        self.pods.write(name, labelled=bool(body["metadata"]["labels"][LABEL_LEADER]))
        return {}

    async def _stop(self, *, at: bool) -> None:
        if at:
            self.stopped.set()
            await self.woken.wait()


class Replica:
    """A process of the operator, by its pod's name. Whether it leads is set by the test."""

    led_since = 0.0
    reachable = True

    def __init__(self, pods: Pods, name: str, *, leading: bool = False) -> None:
        self.leading = leading
        self.road = Road(pods)
        self.label = LeaderLabel(cast("KubeClient", self.road), "ops", name, self)

    def lead(self, leading: bool) -> None:
        """Begin or end a term, and be told of it."""
        self.leading = leading
        self.label.changed()

    async def settle(self) -> bool:
        """Settle once, as what it is."""
        return await self.label.settle(leading=self.leading)


def in_virtual_time(story: Coroutine[Any, Any, None]) -> None:
    """Run a test in which time passes."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story)


async def during(replica: Replica, story: Coroutine[Any, Any, None]) -> None:
    """Play a story while a replica keeps the label, and see that it still does at the end."""
    keeping = asyncio.create_task(replica.label.keep())
    await story
    assert not keeping.done()
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping


async def test_the_leader_takes_the_label_from_a_former_one_that_cannot() -> None:
    pods = Pods("hung")

    assert await Replica(pods, "a", leading=True).settle()
    assert pods.labelled == {"a"}


async def test_a_standby_takes_the_label_only_from_itself() -> None:
    pods = Pods("a", "b")

    assert await Replica(pods, "a").settle()
    assert pods.labelled == {"b"}


async def test_a_label_that_cannot_be_set_is_to_be_tried_again() -> None:
    pods = Pods()
    pods.down = True

    assert not await Replica(pods, "a", leading=True).settle()


async def test_a_former_leader_that_was_stopped_before_its_write_takes_the_label_from_nobody() -> None:
    pods = Pods("b")
    a, b = Replica(pods, "a", leading=True), Replica(pods, "b")
    a.road.stops_before_leave = "b"
    late = asyncio.create_task(a.settle())
    await a.road.stopped.wait()

    a.leading, b.leading = False, True
    assert await b.settle()
    a.road.woken.set()

    assert not await late
    assert await a.settle()
    assert pods.labelled == {"b"}


async def test_a_write_that_is_late_although_it_had_leave_conflicts_with_a_label_that_was_set_since() -> None:
    pods = Pods("b")
    a, b = Replica(pods, "a", leading=True), Replica(pods, "b")
    a.road.stops_after_leave = "b"
    late = asyncio.create_task(a.settle())
    await a.road.stopped.wait()

    assert await b.settle()
    a.leading, b.leading = False, True
    assert await b.settle()
    a.road.woken.set()

    assert not await late
    assert pods.labelled == {"b"}


def test_a_label_that_somebody_removed_comes_back_at_the_next_look() -> None:
    pods = Pods()

    async def removed() -> None:
        await asyncio.sleep(100)
        pods.write("a", labelled=False)
        await asyncio.sleep(LOOK_SECONDS)
        await settle()
        assert pods.labelled == {"a"}

    async def story() -> None:
        await during(Replica(pods, "a", leading=True), removed())

    in_virtual_time(story())


def test_at_rest_the_leader_only_reads_and_a_standby_not_even_that() -> None:
    async def an_hour(leading: bool) -> tuple[int, int]:
        pods = Pods("a") if leading else Pods("b")
        await during(Replica(pods, "a", leading=leading), asyncio.sleep(3600))
        return pods.reads, pods.writes

    async def story() -> None:
        reads, writes = await an_hour(leading=True)
        assert 3600 / LOOK_SECONDS <= reads <= 3600 / LOOK_SECONDS + 1
        assert writes == 0
        assert await an_hour(leading=False) == (1, 0)

    in_virtual_time(story())


def test_a_lease_that_is_lost_amid_it_ends_no_process_and_the_next_try_is_a_standbys() -> None:
    pods = Pods("b")
    tried = []

    async def lost(a: Replica) -> None:
        await a.road.stopped.wait()
        a.leading = False
        a.road.woken.set()
        await asyncio.sleep(RETRY_SECONDS)
        await settle()
        tried.append((pods.reads, elapsed()))

    async def story() -> None:
        a = Replica(pods, "a", leading=True)
        a.road.stops_before_leave = "a"
        await during(a, lost(a))

    in_virtual_time(story())
    assert pods.labelled == {"b"}
    assert tried == [(2, RETRY_SECONDS)]


def test_a_change_of_leader_is_looked_at_at_once() -> None:
    pods = Pods()

    async def term(a: Replica) -> None:
        await asyncio.sleep(1000)
        a.lead(True)
        await settle()
        assert pods.labelled == {"a"}
        a.lead(False)
        await settle()
        assert pods.labelled == set()

    async def story() -> None:
        a = Replica(pods, "a")
        await during(a, term(a))

    in_virtual_time(story())
