"""A flow of the published package, for tests: its worker functions ask the test for the result of a job."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.peers.queues import environment

_DRIVER = Path(__file__).with_name("driver.js")
#: A worker function of the peer: it gets the job and returns the result. The peer throws what it raises.
WorkerFunction = Callable[[dict[str, Any]], Awaitable[Any]]


class PeerFlow:
    """The process, and its commands as methods."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.logs: list[dict[str, Any]] = []
        self._process = process
        self._functions: dict[str, WorkerFunction] = {}
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls: set[asyncio.Task[None]] = set()
        self._reading = asyncio.create_task(self._read())

    async def ready(self) -> None:
        """Wait until it is connected."""
        await asyncio.wait((self._ready, self._reading), timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert self._ready.done(), "the peer did not come up"

    async def create(self, options: dict[str, Any], correlation_id: str | None = None) -> str:
        """Create a job; returns its id."""
        return str(await self._ask("create", options=options, correlationId=correlation_id))

    async def find(self, attribute: str, value: object, *, children: bool = False) -> list[dict[str, Any]]:
        """Return the jobs whose attribute has this value."""
        found: list[dict[str, Any]] = await self._ask("find", attribute=attribute, value=value, children=children)
        return found

    async def delete(self, job_id: str) -> None:
        """Delete a job."""
        await self._ask("delete", id=job_id)

    async def workers(self, queue: str, function: WorkerFunction, count: int = 1, *, lock: int = 180) -> None:
        """Start workers of a queue."""
        self._functions[queue] = function
        await self._ask("workers", queue=queue, count=count, lock=lock, block=1)

    async def parents(self, queue: str, count: int = 1, *, lock: int = 180) -> None:
        """Start parent workers of a queue."""
        await self._ask("parents", queue=queue, count=count, lock=lock, block=1)

    async def children(self, queue: str, child: str, function: WorkerFunction, count: int = 1) -> None:
        """Start workers of a child queue."""
        self._functions[f"{queue}:{child}"] = function
        await self._ask("children", queue=queue, child=child, count=count, lock=180, block=1)

    async def monitor(self, name: str, queues: list[str], interval_ms: int = 50) -> None:
        """Start its monitor for queues of the flow `name`."""
        await self._ask("monitor", name=name, queues=queues, interval=interval_ms)

    async def status(self) -> list[str]:
        """Return the status of every worker."""
        found: list[str] = await self._ask("status")
        return found

    async def stop(self) -> None:
        """Stop its workers and monitors, and disconnect."""
        await self._ask("stop")

    async def kill(self) -> None:
        """Kill the process, like a machine that is lost."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def close(self) -> None:
        """End the process, and the tasks that answer its workers."""
        await self.kill()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(self._reading, *self._calls, return_exceptions=True)

    async def _ask(self, command: str, **arguments: object) -> Any:
        number = len(self._answers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._say({"number": number, "command": command, **arguments})
        async with asyncio.timeout(30):
            return await answer

    def _say(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            message = json.loads(line)
            match message["event"]:
                case "ready":
                    self._ready.set_result(None)
                case "log":
                    self.logs.append(message)
                case "job":
                    call = asyncio.create_task(self._call(message))
                    self._calls.add(call)
                    call.add_done_callback(self._calls.discard)
                case "answer" if "error" in message:
                    self._answers[message["number"]].set_exception(RuntimeError(message["error"]))
                case "answer":
                    self._answers[message["number"]].set_result(message["value"])

    async def _call(self, message: dict[str, Any]) -> None:
        try:
            reply = {"result": await self._functions[message["queue"]](message["job"])}
        except Exception as error:  # noqa: BLE001 - it is the peer's to handle
            reply = {"error": str(error)}
        self._say({"call": message["call"], **reply})


@contextlib.asynccontextmanager
async def peer_flow(
    url: str, name: str, queues: list[dict[str, Any]], lookup: tuple[str, ...] = ()
) -> AsyncIterator[PeerFlow]:
    """Start the peer with a flow in its own form: `queueName`, `attributesToGet`, `nextQueueName`, `children`."""
    definition = {"url": url, "flow": {"name": name, "queueOptions": queues, "lookupAttributes": list(lookup)}}
    modules = await asyncio.to_thread(environment.modules)
    process = await asyncio.create_subprocess_exec(
        environment.node(),
        _DRIVER,
        json.dumps(definition),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "NODE_PATH": str(modules)},
    )
    peer = PeerFlow(process)
    try:
        await peer.ready()
        yield peer
    finally:
        await peer.close()
