"""A write is not sent when the permission to write is withdrawn while it waits for a connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from activity_operator.cluster import fence
from activity_operator.cluster.apply import NotLeadingError
from activity_operator.cluster.kube import KubeClient
from activity_operator.cluster.resources import PODS
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


@asynccontextmanager
async def one_connection(server: Slow) -> AsyncIterator[KubeClient]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()

    async def load(configuration: Any) -> None:
        configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
        configuration.connection_pool_maxsize = 1

    kube = await KubeClient.connect(load)
    try:
        yield kube
    finally:
        await kube.close()
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
