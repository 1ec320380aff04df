"""HTTP calls whose answer comes late, while the process stalls, or never; over sockets, on both event loops."""

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import uvloop

from activity_worker.wire import grace_timeout
from activity_worker.wire.errors import EndpointUnreachableError
from activity_worker.wire.transport import HttpResponse, Transport

LIMIT = 0.3
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"taskToken":"t"}'


class Server:
    """Accepts one call in a thread of its own, which runs while the client's process stalls."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked: Callable[[], object] = lambda: None
        self.answer = threading.Event()
        self.answered = threading.Event()
        self._hung_up = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    async def sees_the_end(self) -> bool:
        """Answer; return whether the client closes the connection soon."""
        self.answer.set()
        return await asyncio.to_thread(self._hung_up.wait, 5)

    def close(self) -> None:
        self.answer.set()
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            received = b""
            while not received.endswith(b"{}"):
                received += connection.recv(65_536)
            self.asked()
            self.answer.wait(10)
            try:
                connection.sendall(ANSWER)
                self.answered.set()
                received = connection.recv(1)
            except ConnectionError:
                received = b""
            if not received:
                self._hung_up.set()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner


def run(runner: asyncio.Runner, server: Server, scene: Callable[[Transport], Awaitable[Any]]) -> Any:
    async def play() -> Any:
        transport = Transport(server.url, ca_bundle="")
        try:
            return await scene(transport)
        finally:
            await transport.close()

    return runner.run(play())


def poll(transport: Transport) -> Awaitable[HttpResponse]:
    return transport.post({}, b"{}", timeout_seconds=LIMIT)


def test_answer_that_came_while_the_process_stalled_is_returned(runner: asyncio.Runner, server: Server) -> None:
    def stand_still() -> None:
        server.answer.set()
        assert server.answered.wait(10)
        time.sleep(2 * LIMIT)

    async def scene(transport: Transport) -> HttpResponse:
        loop = asyncio.get_running_loop()
        server.asked = lambda: loop.call_soon_threadsafe(stand_still)
        return await poll(transport)

    answer = run(runner, server, scene)

    assert (answer.status, answer.body) == (200, b'{"taskToken":"t"}')


def test_unanswered_call_ends_after_the_grace_and_disconnects(
    runner: asyncio.Runner, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grace_timeout, "GRACE_SECONDS", 0.2)

    async def scene(transport: Transport) -> float:
        began = time.monotonic()
        with pytest.raises(EndpointUnreachableError, match="no answer in time") as caught:
            await poll(transport)
        took = time.monotonic() - began
        assert caught.value.code == "ReadTimeout"
        assert await server.sees_the_end()
        return took

    took = run(runner, server, scene)

    assert LIMIT + 0.2 - 0.01 <= took < LIMIT + 5


def test_cancelled_call_disconnects(runner: asyncio.Runner, server: Server) -> None:
    async def scene(transport: Transport) -> bool:
        loop, asked = asyncio.get_running_loop(), asyncio.Event()
        server.asked = lambda: loop.call_soon_threadsafe(asked.set)
        call = asyncio.ensure_future(poll(transport))
        await asked.wait()
        call.cancel()
        await asyncio.wait({call})
        assert await server.sees_the_end()
        return call.cancelled()

    assert run(runner, server, scene)
