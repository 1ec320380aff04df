"""A proxy to a Redis server that kills, cuts off or holds a worker before and after any of its commands."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import hiredis


class Interruption(StrEnum):
    """What happens at the chosen command. `after`: the server has run it, and its answer is lost."""

    CUT_BEFORE = "the connections are cut before"
    CUT_AFTER = "the connections are cut after"
    KILLED_BEFORE = "killed before"
    KILLED_AFTER = "killed after"
    HELD_BEFORE = "held before"

    @property
    def after(self) -> bool:
        return self in {Interruption.CUT_AFTER, Interruption.KILLED_AFTER}

    @property
    def kills(self) -> bool:
        return self in {Interruption.KILLED_BEFORE, Interruption.KILLED_AFTER}


@dataclass
class Proxy:
    """Forwards commands one by one and records them. At the `at`th (from 0) of them `fate` strikes, once.

    `struck` is set then; a held command continues with `release`.
    """

    port: int
    fate: Interruption | None = None
    at: int = -1
    commands: list[str] = field(default_factory=list)
    #: Set when the first command of a name comes.
    heard: defaultdict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    struck: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    dead: bool = False
    url: str = ""
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of the worker."""
        if self.dead:
            writer.close()
            return
        try:
            there, out = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, out}
        try:
            await self._pass(reader, writer, there, out)
        except OSError:
            pass  # either side has closed the connection
        finally:
            writer.close()
            out.close()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        out: asyncio.StreamWriter,
    ) -> None:
        parser = hiredis.Reader()
        while data := await reader.read(65536):
            parser.feed(data)
            while (command := parser.gets()) is not False:
                name = b" ".join(command[:1]).decode()
                number = len(self.commands)
                self.commands.append(name)
                self.heard[name].set()
                fate = self.fate if number == self.at and not self.struck.is_set() else None
                if fate is Interruption.HELD_BEFORE:
                    self.struck.set()
                    await self.release.wait()
                elif fate is not None and not fate.after:
                    self._strike(fate)
                    return
                out.write(hiredis.pack_command(tuple(command)))
                answer = await _answer(there)
                if fate is not None and fate.after:
                    self._strike(fate)
                    return
                writer.write(answer)

    def _strike(self, fate: Interruption) -> None:
        self.struck.set()
        self.dead = fate.kills
        self.cut()

    def cut(self) -> None:
        """Cut all open connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


async def _answer(there: asyncio.StreamReader) -> bytes:
    parser, raw = hiredis.Reader(), b""
    while True:
        data = await there.read(65536)
        if not data:
            raise ConnectionResetError
        raw += data
        parser.feed(data)
        if parser.gets() is not False:
            return raw


@asynccontextmanager
async def proxy(port: int, fate: Interruption | None = None, at: int = -1) -> AsyncIterator[Proxy]:
    """Yield a proxy before the server at `port`."""
    way = Proxy(port, fate, at)
    server = await asyncio.start_server(way.serve, "127.0.0.1", 0)
    way.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    try:
        yield way
    finally:
        way.release.set()
        way.dead = True
        server.close()
        way.cut()
        await asyncio.sleep(0)
