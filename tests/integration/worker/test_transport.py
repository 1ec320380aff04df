"""HTTP calls whose answer comes late, while the process stalls, or never; over sockets, on both event loops."""

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest
import uvloop

from activity_worker.wire import grace_timeout
from activity_worker.wire.errors import EndpointUnreachableError
from activity_worker.wire.http_response import HttpResponse
from activity_worker.wire.transport import Transport
from tests.eventually import eventually

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


def run(runner: asyncio.Runner, server: Server, exchange: Callable[[Transport], Awaitable[Any]]) -> Any:
    async def play() -> Any:
        transport = Transport(server.url, ca_bundle="")
        try:
            return await exchange(transport)
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

    async def exchange(transport: Transport) -> HttpResponse:
        loop = asyncio.get_running_loop()
        server.asked = lambda: loop.call_soon_threadsafe(stand_still)
        return await poll(transport)

    answer = run(runner, server, exchange)

    assert (answer.status, answer.body) == (200, b'{"taskToken":"t"}')


def test_unanswered_call_ends_after_the_grace_and_disconnects(
    runner: asyncio.Runner, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grace_timeout, "GRACE_SECONDS", 0.2)

    async def exchange(transport: Transport) -> float:
        began = time.monotonic()
        with pytest.raises(EndpointUnreachableError, match="no answer in time") as caught:
            await poll(transport)
        took = time.monotonic() - began
        assert caught.value.code == "ReadTimeout"
        assert await server.sees_the_end()
        return took

    took = run(runner, server, exchange)

    assert LIMIT + 0.2 - 0.01 <= took < LIMIT + 5


def test_cancelled_call_disconnects(runner: asyncio.Runner, server: Server) -> None:
    async def exchange(transport: Transport) -> bool:
        loop, asked = asyncio.get_running_loop(), asyncio.Event()
        server.asked = lambda: loop.call_soon_threadsafe(asked.set)
        call = asyncio.ensure_future(poll(transport))
        await asked.wait()
        call.cancel()
        await asyncio.wait({call})
        assert await server.sees_the_end()
        return call.cancelled()

    assert run(runner, server, exchange)


class Answering(asyncio.Protocol):
    """Answers each request with the next of `answers`; None ends the connection."""

    def __init__(self, answers: list[bytes | None], seen: list["Answering"]) -> None:
        self._answers = answers
        self._seen = seen
        self.requests: list[bytes] = []
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._seen.append(self)
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.requests.append(data)
        answer = self._answers.pop(0)
        if answer is None:
            self.transport.close()
        else:
            self.transport.write(answer)

    def connection_lost(self, _: Exception | None) -> None:
        self.ended.set()


async def serving(
    answers: list[bytes | None], *, path: str = "", **options: Any
) -> tuple[asyncio.Server, Transport, list[Answering]]:
    seen: list[Answering] = []
    listener = await asyncio.get_running_loop().create_server(lambda: Answering(answers, seen), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}{path}"
    return listener, Transport(url, **options), seen


def test_one_connection_serves_calls_in_turn_until_the_server_ends_it(runner: asyncio.Runner) -> None:
    closing = ANSWER.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")

    async def exchange() -> list[int]:
        listener, transport, seen = await serving([ANSWER, ANSWER, closing, ANSWER])
        for _ in range(4):
            await transport.post({}, b"{}", timeout_seconds=5)
        await transport.close()
        listener.close()
        return [len(connection.requests) for connection in seen]

    assert runner.run(exchange()) == [3, 1]


def test_calls_at_once_have_a_connection_each(runner: asyncio.Runner) -> None:
    async def exchange() -> int:
        listener, transport, seen = await serving([ANSWER] * 20)
        await asyncio.gather(*(transport.post({}, b"{}", timeout_seconds=5) for _ in range(20)))
        await transport.close()
        listener.close()
        return len(seen)

    assert runner.run(exchange()) == 20


def test_connection_that_ends_without_an_answer_fails_its_call_alone(runner: asyncio.Runner) -> None:
    async def exchange() -> tuple[int, int]:
        listener, transport, seen = await serving([None, ANSWER])
        with pytest.raises(EndpointUnreachableError, match="ended before the answer was complete"):
            await transport.post({}, b"{}", timeout_seconds=5)
        answer = await transport.post({}, b"{}", timeout_seconds=5)
        await transport.close()
        listener.close()
        return answer.status, len(seen)

    assert runner.run(exchange()) == (200, 2)


def test_idle_connection_is_closed_and_not_used_again(runner: asyncio.Runner) -> None:
    async def exchange() -> int:
        listener, transport, seen = await serving([ANSWER, ANSWER], idle_seconds=0.01)
        await transport.post({}, b"{}", timeout_seconds=5)
        await seen[0].ended.wait()
        await transport.post({}, b"{}", timeout_seconds=5)
        await transport.close()
        listener.close()
        return len(seen)

    assert runner.run(exchange()) == 2


def test_bytes_that_nobody_asked_for_end_the_connection(runner: asyncio.Runner) -> None:
    async def exchange() -> list[int]:
        listener, transport, seen = await serving([ANSWER, ANSWER])
        await transport.post({}, b"{}", timeout_seconds=5)
        seen[0].transport.write(ANSWER)
        await seen[0].ended.wait()
        await transport.post({}, b"{}", timeout_seconds=5)
        await transport.close()
        listener.close()
        return [len(connection.requests) for connection in seen]

    assert runner.run(exchange()) == [1, 1]


def test_request_has_the_url_s_path_and_the_headers_of_the_caller(runner: asyncio.Runner) -> None:
    async def exchange() -> bytes:
        listener, transport, seen = await serving([ANSWER], path="/a b/c%20d?e=f")
        await transport.post({"Host": "states.example", "X-Amz-Target": "A.B"}, b'{"a":1}', timeout_seconds=5)
        await transport.close()
        listener.close()
        return seen[0].requests[0]

    head, _, body = runner.run(exchange()).partition(b"\r\n\r\n")
    first, *headers = head.decode().split("\r\n")

    assert first == "POST /a%20b/c%20d?e=f HTTP/1.1"
    assert {"Host: states.example", "X-Amz-Target: A.B", "Content-Length: 7"} < set(headers)
    assert body == b'{"a":1}'


def test_header_with_a_line_break_is_not_sent(runner: asyncio.Runner) -> None:
    async def exchange() -> int:
        listener, transport, seen = await serving([])
        with pytest.raises(ValueError, match="line break"):
            await transport.post({"X-Amz-Security-Token": "word\r\nOther: word"}, b"{}", timeout_seconds=5)
        listener.close()
        return len(seen)

    assert runner.run(exchange()) == 0


def test_refused_connection_names_the_endpoint(runner: asyncio.Runner) -> None:
    async def exchange() -> None:
        listener, transport, _ = await serving([])
        listener.close()
        await listener.wait_closed()
        await transport.post({}, b"{}", timeout_seconds=5)

    with pytest.raises(EndpointUnreachableError, match=r"http://127\.0\.0\.1:\d+: no connection: ") as caught:
        runner.run(exchange())
    assert caught.value.code == "EndpointUnreachable"


def test_closing_fails_calls_under_way(runner: asyncio.Runner) -> None:
    async def exchange() -> None:
        listener, transport, seen = await serving([b""])
        call = asyncio.ensure_future(transport.post({}, b"{}", timeout_seconds=5))
        await eventually("the request is there", lambda: bool(seen and seen[0].requests))
        await transport.close()
        listener.close()
        await call

    with pytest.raises(EndpointUnreachableError):
        runner.run(exchange())


def test_proxy_of_the_environment_takes_the_calls(runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    async def exchange() -> bytes:
        listener, direct, seen = await serving([ANSWER])
        port = listener.sockets[0].getsockname()[1]
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "localhost")
        transport = Transport("http://states.example/")
        answer = await transport.post({"Host": "states.example"}, b"{}", timeout_seconds=5)
        assert answer.body == b'{"taskToken":"t"}'
        await transport.close()
        await direct.close()
        listener.close()
        return seen[0].requests[0]

    assert runner.run(exchange()).startswith(b"POST http://states.example/ HTTP/1.1\r\n")
