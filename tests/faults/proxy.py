"""Carries a plan out: an HTTP reverse proxy in front of the API server or of the task service."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Protocol

import aiohttp
from aiohttp import web

from tests.faults import calls
from tests.faults.calls import Call
from tests.faults.plan import AWS_REFUSALS, CRASHES, REFUSALS, Fault, Kind, Plan

LATE_SECONDS = 1.0
#: Seconds: shorter than the time limit of a write, longer than the rest of a scenario waits for it.
LATE_ANSWER_SECONDS = 3.0
#: Seconds from the refusal of a token until the next one is in the file.
ROTATED_SECONDS = 1.0
#: Longer than any caller waits.
FOR_EVER_SECONDS = 3600.0
_HOP_BY_HOP = {"host", "connection", "transfer-encoding", "content-length", "accept-encoding", "content-encoding"}


class Victim(Protocol):
    """The operator whose calls pass through a proxy."""

    def kill(self) -> None:
        """Kill its process."""
        ...

    def freeze(self) -> None:
        """Stop its process (SIGSTOP)."""
        ...


class Proxy:
    """Forwards calls to `upstream` and applies its plan's faults. `victim` is the operator that calls through it.

    `caller` names calls to the task service; `rotate` gives the operator its next token.
    """

    def __init__(
        self,
        upstream: str,
        victim: Callable[[], Victim],
        ssl_context: Any = None,
        *,
        caller: str = calls.OPERATOR,
        rotate: Callable[[], None] = lambda: None,
    ) -> None:
        self.plan = Plan()
        self.heard: Callable[[Call, int, bytes, bool], None] = lambda *_: None
        self.released = asyncio.Event()
        self.answers: list[tuple[Fault, int]] = []
        self._upstream = upstream
        self._victim = victim
        self._ssl = ssl_context
        self._caller = caller
        self._rotate = rotate
        self._refused: set[str] = set()
        self._gates: dict[str, asyncio.Event] = {}
        self._gone: set[str] = set()
        self._streams: dict[str, set[asyncio.Task[Any]]] = {}
        self._handling: set[asyncio.Task[Any]] = set()
        self.url = ""

    def close_gate(self, kind: str) -> None:
        """End the watches of a kind and refuse new ones until `open_gate`."""
        self._gates[kind] = asyncio.Event()
        for stream in tuple(self._streams.get(kind, ())):
            stream.cancel()

    def end_streams(self) -> None:
        """End every watch; new ones pass."""
        for stream in [stream for streams in self._streams.values() for stream in streams]:
            stream.cancel()

    def open_gate(self, kind: str) -> None:
        """Let watches of the kind pass again; the next one gets 410 Gone for its resourceVersion."""
        self._gone.add(kind)
        self._gates.pop(kind).set()

    async def start(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self._ssl, limit=0)
        plain = {"Accept-Encoding": "identity"}
        self._session = aiohttp.ClientSession(connector=connector, headers=plain, auto_decompress=False)
        server = web.Server(self._handle, access_log=None)
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        self.released.set()
        for handling in self._handling:
            handling.cancel()
        await asyncio.gather(*self._handling, return_exceptions=True)
        await self._session.close()
        await self._runner.cleanup()

    def refuse_from_now_on(self, authorization: str) -> None:
        """Refuse a token from now on, end the watches that were opened with it, and write the next token soon after."""
        if self.refuses(authorization):
            return
        # The API server knows two tokens of each user, which take turns.
        self._refused = {authorization}
        self.end_streams()
        asyncio.get_running_loop().call_later(ROTATED_SECONDS, self._rotate)

    def refuses(self, authorization: str) -> bool:
        """Whether calls with this token are refused."""
        return authorization in self._refused

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        # A call that an operator has sent reaches the server even when the operator is killed meanwhile.
        handling = asyncio.create_task(self._answer(request))
        self._handling.add(handling)
        handling.add_done_callback(self._handling.discard)
        await asyncio.wait({handling})
        return _vanish(request) if handling.cancelled() else handling.result()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            body = await request.read()
        except ConnectionError:
            return _vanish(request)
        target = request.headers.get("X-Amz-Target", "")
        call = (
            calls.aws_call(target, self._caller)
            if target
            else calls.kube_call(request.method, request.path, request.query, body)
        )
        fault = (self.plan.call if call.writes or call.watches else self.plan.read)(call.name)
        if fault is not None and fault.kind is Kind.ROTATED:
            self.refuse_from_now_on(request.headers.get("Authorization", ""))
        if self.refuses(request.headers.get("Authorization", "")):
            return _refusal(*REFUSALS[Kind.UNAUTHORIZED])
        if fault is not None and (answer := await self._before(request, fault)) is not None:
            return answer
        try:
            if call.watches:
                return await self._watch(request, call)
            return await self._pass(request, call, body, fault)
        except (aiohttp.ClientError, ConnectionError, RuntimeError):  # RuntimeError: the session of a stream was closed
            return _vanish(request)

    async def _before(self, request: web.BaseRequest, fault: Fault) -> web.StreamResponse | None:
        """Apply a fault that acts before the server gets the call; return None to let the call pass."""
        if fault.kind is Kind.CRASH_BEFORE:
            self._victim().kill()
            return _vanish(request)
        if fault.kind is Kind.CALL_LOST:
            return _vanish(request)
        if fault.kind in AWS_REFUSALS and "X-Amz-Target" in request.headers:
            return _aws_refusal(*AWS_REFUSALS[fault.kind])
        if fault.kind in REFUSALS:
            return _refusal(*REFUSALS[fault.kind])
        if fault.kind is Kind.HANG:
            await asyncio.sleep(FOR_EVER_SECONDS)
        if fault.kind is Kind.HELD:
            self._victim().freeze()
            await self.released.wait()
        return None

    async def _forward(self, request: web.BaseRequest, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        async with self._session.request(
            request.method, self._upstream + request.raw_path, data=body or None, headers=_headers(request.headers)
        ) as answer:
            return answer.status, await answer.read(), _headers(answer.headers)

    async def _pass(self, request: web.BaseRequest, call: Call, body: bytes, fault: Fault | None) -> web.StreamResponse:
        status, content, headers = await self._forward(request, body)
        if fault is not None and fault.kind is Kind.TWICE:
            self.heard(call, status, content, False)
            status, content, headers = await self._forward(request, body)
        arrives = fault is None or fault.kind in {*CRASHES, Kind.LATE_ANSWER, Kind.TWICE}
        self.heard(call, status, content, arrives)
        if fault is not None:
            self.answers.append((fault, status))
            if fault.kind in CRASHES:
                self._victim().kill()
            if fault.kind in {Kind.CRASH_AFTER, Kind.LOST_ANSWER}:
                return _vanish(request)
            if fault.kind is Kind.CUT:
                return await _half(request, status, content)
            if fault.kind is Kind.LATE_ANSWER:
                await asyncio.sleep(LATE_ANSWER_SECONDS)
            if fault.kind is Kind.HALF_OPEN:
                await asyncio.sleep(FOR_EVER_SECONDS)
        return web.Response(status=status, body=content, headers=headers)

    async def _watch(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        kind = call.watches
        if kind in self._gates:
            await self._gates[kind].wait()
        down = web.StreamResponse(headers={"Content-Type": "application/json"})
        if kind in self._gone and request.query.get("resourceVersion"):
            self._gone.discard(kind)
            await down.prepare(request)
            await down.write(_error(410, "Expired"))
            return down
        task = asyncio.current_task()
        assert task is not None
        self._streams.setdefault(kind, set()).add(task)
        try:
            return await self._stream(request, call, down)
        except asyncio.CancelledError:
            return _vanish(request)
        finally:
            self._streams[kind].discard(task)

    async def _stream(self, request: web.BaseRequest, call: Call, down: web.StreamResponse) -> web.StreamResponse:
        async with self._session.get(
            self._upstream + request.raw_path,
            headers=_headers(request.headers),
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=2**22,
        ) as answer:
            if answer.status != 200:
                return web.Response(status=answer.status, body=await answer.read())
            await down.prepare(request)
            silent = False
            async for line in answer.content:
                name = calls.event(call.watches, json.loads(line))
                fault = None if name.startswith("BOOKMARK") else self.plan.event(name)
                silent = silent or (fault is not None and fault.kind is Kind.STREAM_SILENT)
                for piece, last in () if silent else _pieces(line, fault):
                    if fault is not None and fault.kind is Kind.EVENT_LATE:
                        await asyncio.sleep(LATE_SECONDS)
                    await down.write(piece)
                    if last:
                        return _vanish(request)
        return down


def _pieces(line: bytes, fault: Fault | None) -> list[tuple[bytes, bool]]:
    """Return the parts of an event's line that are written, each with whether the stream ends after it."""
    match fault.kind if fault else None:
        case Kind.EVENT_LOST:
            return []
        case Kind.EVENT_TWICE:
            return [(line, False), (line, False)]
        case Kind.EVENT_TORN:
            return [(line[: len(line) // 2], True)]
        case Kind.STREAM_FAILED:
            return [(_error(500, "InternalError"), True)]
        case _:
            return [(line, False)]


def _headers(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}


def _status(code: int, reason: str) -> dict[str, Any]:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**status, "message": "a fault of the test", "reason": reason, "code": code}


def _error(code: int, reason: str) -> bytes:
    return json.dumps({"type": "ERROR", "object": _status(code, reason)}).encode() + b"\n"


def _refusal(code: int, reason: str) -> web.Response:
    headers = {"Retry-After": "1"} if code == 429 else {}
    return web.json_response(_status(code, reason), status=code, headers=headers)


def _aws_refusal(code: int, kind: str) -> web.Response:
    answer = json.dumps({"__type": kind, "message": "a fault of the test"})
    return web.Response(text=answer, status=code, content_type="application/x-amz-json-1.0")


async def _half(request: web.BaseRequest, status: int, content: bytes) -> web.StreamResponse:
    """Announce the whole answer, send half of it, and break the connection."""
    down = web.StreamResponse(status=status, headers={"Content-Type": "application/json"})
    down.content_length = len(content)
    await down.prepare(request)
    await down.write(content[: len(content) // 2])
    return _vanish(request)


def _vanish(request: web.BaseRequest) -> web.Response:
    """Break the connection; the caller does not receive the returned response."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)
