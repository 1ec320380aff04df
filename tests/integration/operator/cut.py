"""A relay to the API server that a test can cut: it refuses connections, or keeps them open without a byte."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from activity_operator.cluster.kube import Credentials


class Road:
    """A TCP relay. `hang()` keeps all connections open and silent, `refuse()` closes them; `mend()` undoes both."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._open = asyncio.Event()
        self._open.set()
        self._refusing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    def hang(self) -> None:
        self._open.clear()

    def refuse(self) -> None:
        self._refusing = True
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        self._refusing = False
        self._open.set()

    def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay a connection in a task of ours: asyncio logs an error when a handler task of its own is cancelled."""
        if self._refusing:
            writer.transport.abort()
            return
        self._writers.add(writer)
        self._keep(asyncio.create_task(self._lead(reader, writer)))

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._open.wait()
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            # The task's result is not awaited.
            self._writers.discard(writer)
            writer.transport.abort()
            return
        self._writers.add(back)
        for pair in ((reader, back), (there, writer)):
            self._keep(asyncio.create_task(self._carry(*pair)))

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                await self._open.wait()
                sink.write(data)
                await sink.drain()
        sink.transport.abort()
        self._writers.discard(sink)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in list(self._writers):
            writer.transport.abort()

    def over(self, load: Credentials) -> Credentials:
        """Return credentials whose server is reached through this relay."""

        async def relayed(configuration: Any) -> None:
            await load(configuration)
            configuration.host = f"https://127.0.0.1:{self.port}"

        return relayed


@asynccontextmanager
async def road_to(server: str) -> AsyncIterator[Road]:
    """Open a relay to the API server at `server` (a URL)."""
    parts = urlsplit(server)
    road = Road(parts.hostname or "127.0.0.1", parts.port or 443)
    listening = await asyncio.start_server(road.meet, "127.0.0.1", 0)
    road.port = listening.sockets[0].getsockname()[1]
    try:
        yield road
    finally:
        listening.close()
        road.mend()
        await road.close()
