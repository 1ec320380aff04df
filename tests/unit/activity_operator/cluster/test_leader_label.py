"""The leader's label: it ends up on the leader's pod after any foreign write, and at rest it costs only reads."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

from activity_operator.cluster import fence
from activity_operator.cluster.kube import ApiError, ApiUnreachableError, KubeClient
from activity_operator.cluster.leader_label import LOOK_SECONDS, RETRY_SECONDS, LeaderLabel
from activity_worker.contract import LABEL_LEADER
from tests.unit.activity_operator.virtual_time import VirtualLoop, elapsed, settle

ANY = cast("Any", None)


class Pods:
    """The operator's pods with the label, each with its resourceVersion."""

    def __init__(self, *labelled: str) -> None:
        self.versions = dict.fromkeys(("a", "b", "hung"), 1)
        self.labelled = set(labelled)
        self.reads = self.writes = 0
        self.down = False

    def write(self, name: str, *, labelled: bool) -> None:
        """Set or remove the label, as any client may."""
        self.versions[name] += 1
        (self.labelled.add if labelled else self.labelled.discard)(name)


class PodClient:
    """One process's client for the pods; a write to the pod in `stops_*` waits there until `woken` is set."""

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
        request = SimpleNamespace()
        await fence._begin(ANY, request, ANY)
        await fence._ask(ANY, request, ANY)
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
    """A process of the operator, named after its pod; the test sets whether it leads."""

    led_since = 0.0
    reachable = True

    def __init__(self, pods: Pods, name: str, *, leading: bool = False) -> None:
        self.leading = leading
        self.pod_client = PodClient(pods)
        self.label = LeaderLabel(cast("KubeClient", self.pod_client), "ops", name, self)

    def lead(self, leading: bool) -> None:
        """Start or end a term, and notify the label."""
        self.leading = leading
        self.label.changed()

    async def settle(self) -> bool:
        """Settle the label once, as leader or standby."""
        return await self.label.settle(leading=self.leading)


def in_virtual_time(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(scenario)


async def during(replica: Replica, scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario while a replica keeps the label, and check that the replica still keeps it at the end."""
    keeping = asyncio.create_task(replica.label.keep())
    await scenario
    assert not keeping.done()
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping


async def test_leader_removes_the_label_of_a_hung_former_leader() -> None:
    pods = Pods("hung")

    assert await Replica(pods, "a", leading=True).settle()
    assert pods.labelled == {"a"}


async def test_standby_removes_only_its_own_label() -> None:
    pods = Pods("a", "b")

    assert await Replica(pods, "a").settle()
    assert pods.labelled == {"b"}


async def test_failed_label_write_asks_for_a_retry() -> None:
    pods = Pods()
    pods.down = True

    assert not await Replica(pods, "a", leading=True).settle()


async def test_former_leader_stopped_before_its_write_removes_no_label() -> None:
    pods = Pods("b")
    a, b = Replica(pods, "a", leading=True), Replica(pods, "b")
    a.pod_client.stops_before_leave = "b"
    late = asyncio.create_task(a.settle())
    await a.pod_client.stopped.wait()

    a.leading, b.leading = False, True
    assert await b.settle()
    a.pod_client.woken.set()

    assert not await late
    assert await a.settle()
    assert pods.labelled == {"b"}


async def test_late_write_with_leave_conflicts_with_a_newer_label() -> None:
    pods = Pods("b")
    a, b = Replica(pods, "a", leading=True), Replica(pods, "b")
    a.pod_client.stops_after_leave = "b"
    late = asyncio.create_task(a.settle())
    await a.pod_client.stopped.wait()

    assert await b.settle()
    a.leading, b.leading = False, True
    assert await b.settle()
    a.pod_client.woken.set()

    assert not await late
    assert pods.labelled == {"b"}


def test_removed_label_is_restored_at_the_next_look() -> None:
    pods = Pods()

    async def removed() -> None:
        await asyncio.sleep(100)
        pods.write("a", labelled=False)
        await asyncio.sleep(LOOK_SECONDS)
        await settle()
        assert pods.labelled == {"a"}

    async def scenario() -> None:
        await during(Replica(pods, "a", leading=True), removed())

    in_virtual_time(scenario())


def test_at_rest_only_the_leader_reads_and_no_replica_writes() -> None:
    async def an_hour(leading: bool) -> tuple[int, int]:
        pods = Pods("a") if leading else Pods("b")
        await during(Replica(pods, "a", leading=leading), asyncio.sleep(3600))
        return pods.reads, pods.writes

    async def scenario() -> None:
        reads, writes = await an_hour(leading=True)
        assert 3600 / LOOK_SECONDS <= reads <= 3600 / LOOK_SECONDS + 1
        assert writes == 0
        assert await an_hour(leading=False) == (1, 0)

    in_virtual_time(scenario())


def test_lease_lost_during_a_write_is_retried_as_standby() -> None:
    pods = Pods("b")
    tried = []

    async def lost(a: Replica) -> None:
        await a.pod_client.stopped.wait()
        a.leading = False
        a.pod_client.woken.set()
        await asyncio.sleep(RETRY_SECONDS)
        await settle()
        tried.append((pods.reads, elapsed()))

    async def scenario() -> None:
        a = Replica(pods, "a", leading=True)
        a.pod_client.stops_before_leave = "a"
        await during(a, lost(a))

    in_virtual_time(scenario())
    assert pods.labelled == {"b"}
    assert tried == [(2, RETRY_SECONDS)]


def test_change_of_leader_settles_the_label_at_once() -> None:
    pods = Pods()

    async def term(a: Replica) -> None:
        await asyncio.sleep(1000)
        a.lead(True)
        await settle()
        assert pods.labelled == {"a"}
        a.lead(False)
        await settle()
        assert pods.labelled == set()

    async def scenario() -> None:
        a = Replica(pods, "a")
        await during(a, term(a))

    in_virtual_time(scenario())
