"""No byte of a write is sent once the permission to write is withdrawn, at whatever moment that happens."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from activity_operator.backlog.protocol import PollTarget
from activity_operator.cluster import fence
from activity_operator.cluster.apply import NotLeadingError
from activity_operator.cluster.event_publisher import EventPublisher
from activity_operator.cluster.kube import KubeClient
from activity_operator.cluster.resources import PODS, POOLS
from activity_operator.core.decision import EmitEvent
from activity_operator.leases.model import LeaseOwner, PoolRef, TaskLease
from activity_operator.leases.secret_store import SecretLeaseStore
from activity_operator.leases.store import FormerLeaderError
from tests.eventually import eventually


class Slow:
    """An API server that answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path.rpartition("/")[2])
        await self.may_answer.wait()
        return web.json_response({"metadata": {}})

    async def hears(self, count: int) -> None:
        await eventually(f"{count} requests have come", lambda: len(self.asked) >= count)


class SuspendedLeader:
    """A leader that is suspended, and replaced, at the first turn of the event loop after a check of its leadership.

    `sent` has, for each time that bytes were given to the kernel, whether the process led then.
    """

    def __init__(self) -> None:
        self.leads = True
        self.sent: list[bool] = []

    def check(self) -> None:
        if not self.still_leads():
            raise NotLeadingError

    def still_leads(self) -> bool:
        asyncio.get_running_loop().call_soon(self._suspend)
        return self.leads

    def _suspend(self) -> None:
        self.leads = False

    def socket(self, address: Any) -> socket.socket:
        """Return a socket that notes each sending of bytes."""
        leader = self

        class Noted(socket.socket):
            def send(self, *sent: Any) -> int:
                leader.sent.append(leader.leads)
                return super().send(*sent)

            def sendmsg(self, *sent: Any) -> int:
                leader.sent.append(leader.leads)
                return super().sendmsg(*sent)

        made = Noted(address[0], address[1], address[2])
        made.setblocking(False)
        return made


@asynccontextmanager
async def one_connection(
    server: Slow, make_socket: Callable[[Any], socket.socket] | None = None
) -> AsyncIterator[KubeClient]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    given: list[aiohttp.TCPConnector] = []

    async def load(configuration: Any) -> None:
        configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
        configuration.connection_pool_maxsize = 1
        if make_socket is not None:
            given.append(aiohttp.TCPConnector(limit=1, socket_factory=make_socket))
            configuration.client_session_kwargs = {"connector": given[0]}

    kube = await KubeClient.connect(load)
    try:
        yield kube
    finally:
        await kube.close()
        for connector in given:
            await connector.close()
        await runner.cleanup()


@pytest.mark.parametrize("stays", [True, False], ids=["it still leads", "it leads no more"])
async def test_permission_is_checked_again_when_a_connection_is_free(stays: bool) -> None:
    server, leads = Slow(), True

    def ask() -> None:
        if not leads:
            raise NotLeadingError

    async def write() -> None:
        with fence.checked_before_send(ask):
            await kube.merge_patch(PODS, "ns", "late", {})

    async with asyncio.timeout(30), one_connection(server) as kube:
        first = asyncio.create_task(kube.merge_patch(PODS, "ns", "first", {}))
        await server.hears(1)
        late = asyncio.create_task(write())
        await asyncio.sleep(0)
        leads = stays
        server.may_answer.set()
        await first
        await asyncio.gather(late, return_exceptions=True)

        assert isinstance(late.exception(), NotLeadingError) is not stays
        assert server.asked == (["first", "late"] if stays else ["first"])
        await kube.merge_patch(PODS, "ns", "next", {})
        assert server.asked[-1] == "next", "the connection must be usable again"


Call = Callable[[KubeClient], Coroutine[Any, Any, Any]]
WRITES: dict[str, Call] = {
    "a merge patch": lambda kube: kube.merge_patch(PODS, "ns", "one", {"metadata": {"annotations": {"cost": "1"}}}),
    "a JSON patch": lambda kube: kube.json_patch(PODS, "ns", "one", [{"op": "remove", "path": "/x"}]),
    "an apply": lambda kube: kube.apply_status(POOLS, "ns", "one", {"status": {}}),
    "a large apply": lambda kube: kube.apply_status(POOLS, "ns", "one", {"status": {"text": "x" * 1_000_000}}),
    "a creation": lambda kube: kube.create(PODS, "ns", {"metadata": {"name": "one"}}),
    "a replacement": lambda kube: kube.replace(PODS, "ns", "one", {"metadata": {"name": "one"}}),
    "a deletion": lambda kube: kube.delete(PODS, "ns", "one", "uid"),
}


@pytest.mark.parametrize("call", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("warm", [False, True], ids=["new connection", "open connection"])
async def test_leader_suspended_after_the_check_sends_nothing_later(call: Call, warm: bool) -> None:
    server, leader = Slow(), SuspendedLeader()
    server.may_answer.set()

    async with asyncio.timeout(30), one_connection(server, leader.socket) as kube:
        if warm:
            await kube.get(PODS, "ns", "earlier")
            server.asked.clear()
            leader.sent.clear()
        refused = False
        try:
            with fence.checked_before_send(leader.check):
                await call(kube)
        except NotLeadingError:
            refused = True

        assert leader.sent[:1] == ([] if refused else [True])
        assert len(server.asked) == (0 if refused else 1)
        await kube.get(PODS, "ns", "next")
        assert server.asked[-1] == "next", "another call must be possible"


async def test_former_leader_writes_no_owner_and_removes_no_record() -> None:
    """A worker claimed or released the lease, and the process was suspended before it had sent the write."""
    server, leader = Slow(), SuspendedLeader()
    server.may_answer.set()
    lease = TaskLease(
        "a" * 32, PoolRef("media", "resize", "pool-1"), PollTarget("arn:x"), "token", "{}", 1.0,
        record_uid="uid", record_version="7",
    )  # fmt: skip

    async with asyncio.timeout(30), one_connection(server) as kube:
        records = SecretLeaseStore(kube, "system", leader.still_leads)
        await asyncio.sleep(0)
        for write in (partial(records.claim, lease, LeaseOwner("pod", "first")), partial(records.delete, lease)):
            leader.leads = True
            with pytest.raises(FormerLeaderError):
                await write()
        assert server.asked == []
        await records.withdraw(lease)
        assert server.asked == ["lease-" + lease.id]


async def test_event_of_a_former_leader_is_not_posted(caplog: pytest.LogCaptureFixture) -> None:
    server, leader = Slow(), SuspendedLeader()
    server.may_answer.set()
    caplog.set_level("INFO", logger="activity_operator")

    async with asyncio.timeout(30), one_connection(server) as kube:
        events = EventPublisher(kube, "me", allowed=leader.still_leads, clock=time.monotonic, wall=time.time)
        posting = asyncio.create_task(events.run())
        events.publish(
            {"metadata": {"namespace": "media", "name": "resize", "uid": "pool-1"}}, EmitEvent("Normal", "Late", "one")
        )
        await eventually("the Event is given up", lambda: "event Late was not posted" in caplog.text)
        posting.cancel()

        assert server.asked == []
