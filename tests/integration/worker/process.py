"""`activity-worker run` as a process, for tests."""

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from activity_worker.contract import Env
from tests.eventually import eventually

ROOT = Path(__file__).parents[3]
HANDLERS = "tests.integration.worker.handlers"
#: Seconds for what a process does in a second or two, on a busy machine.
PATIENCE_SECONDS = 90.0


class WorkerProcess:
    """A running `activity-worker`, its log lines, and its probes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._grown = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def line_with(self, text: str) -> str:
        """Wait for a log line that contains `text`."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._grown:
            await self._grown.wait_for(lambda: any(text in line for line in self.lines))
        return next(line for line in self.lines if text in line)

    def facts(self, message: str) -> list[dict[str, Any]]:
        """Return the JSON log lines whose message starts with `message`."""
        entries = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [entry for entry in entries if entry["message"].startswith(message)]

    async def exit_code(self) -> int:
        """Wait for the end."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await self.process.wait()
            await self._reading
        return code

    def children(self) -> list[int]:
        """Return the process ids of its children."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(word) for word in text.split()]

    async def close(self) -> None:
        """Kill it if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            async with self._grown:
                self.lines.append(line.decode())
                self._grown.notify_all()


@contextlib.asynccontextmanager
async def worker(
    *arguments: str, env: dict[str, str] | None = None, python: Sequence[str] = (), folder: Path = ROOT
) -> AsyncIterator[WorkerProcess]:
    """Start `activity-worker` with these arguments, in an environment without AWS settings of the user.

    `python` are options of its interpreter, `folder` is its working directory.
    """
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "ACTIVITY_", "POD_"))}
    clean |= {"PYTHONPATH": str(ROOT), "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"} | (env or {})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *python, "-m", "activity_worker", *arguments),
        stderr=asyncio.subprocess.PIPE,
        env=clean,
        cwd=folder,
    )
    running = WorkerProcess(process)
    try:
        yield running
    finally:
        await running.close()


def reporting_env(port: int, folder: Path) -> dict[str, str]:
    """Return the variables that the operator sets in a pod, to report to 127.0.0.1 without TLS."""
    token = folder / "token"
    token.write_text("secret-token")
    return {
        Env.REPORT_URL: f"http://127.0.0.1:{port}",
        Env.REPORT_TOKEN_FILE: str(token),
        Env.POD_NAMESPACE: "shop",
        Env.POD_NAME: "resize-abc",
        Env.POD_UID: "uid-1",
        Env.POOL: "resize",
    }


async def probe(port: int, path: str) -> tuple[int, str]:
    """Return status and text of a path of the health server."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


async def stopping(port: int) -> None:
    """Wait until the health server says that the worker stops."""

    async def says_so() -> bool:
        return await probe(port, "/readyz") == (503, "stopping\n")

    await eventually("/readyz says that the worker stops", says_so)


def metric(text: str, name: str) -> float:
    """Return a metric's value from a metrics page."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found, f"{name} is not in the exposition"
    return float(found[1])
