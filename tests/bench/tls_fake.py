"""A fake of the product, by default that of Step Functions, as a process that serves HTTPS, and a client of it."""

from __future__ import annotations

import asyncio
import json
import resource
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.cluster import certificates

ROLE_ARN = "arn:aws:iam::123456789012:role/bench"
_START_SECONDS = 20.0
STEP_FUNCTIONS = "activity_worker.testing.stepfunctions"
SWF = "activity_worker.testing.swf"


class TlsFake:
    """The running fake: its `url`, its CA, and calls to it."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, ca_file: Path) -> None:
        self._process = process
        self.url, self.ca_file = url, ca_file
        trust = ssl.create_default_context(cafile=str(ca_file))
        # Connections stay open, as those of a client of the service do: a burst must not measure handshakes.
        connector = aiohttp.TCPConnector(ssl=trust, limit=0, keepalive_timeout=120)
        self._session = aiohttp.ClientSession(connector=connector)

    async def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Call an operation of the service; raises RuntimeError with the fake's error when it refuses."""
        headers = {"X-Amz-Target": f"AWSStepFunctions.{operation}", "Content-Type": "application/x-amz-json-1.0"}
        async with self._session.post(self.url, data=json.dumps(parameters), headers=headers) as answer:
            content = await answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{operation}: {answer.status} {content[:300]!r}")
            return dict(json.loads(content))

    async def machine(self, name: str) -> tuple[str, str]:
        """Make an activity and a state machine of one task over it; return both ARNs."""
        activity = (await self.call("CreateActivity", name=name))["activityArn"]
        state = {"Type": "Task", "Resource": activity, "HeartbeatSeconds": 60, "TimeoutSeconds": 900, "End": True}
        definition = json.dumps({"StartAt": "Work", "States": {"Work": state}})
        made = await self.call("CreateStateMachine", name=name, definition=definition, roleArn=ROLE_ARN)
        return str(activity), str(made["stateMachineArn"])

    async def order(self, page: str, **order: Any) -> dict[str, Any]:
        """POST to one of the fake's own pages, such as `tasks` or `limits`; raises RuntimeError when it refuses."""
        async with self._session.post(f"{self.url}/_fake/{page}", json=order) as answer:
            if answer.status != 200:
                raise RuntimeError(f"{page}: {answer.status} {(await answer.text())[:300]}")
            return dict(await answer.json())

    async def state(self) -> dict[str, Any]:
        """Return the fake's counters, without the tasks."""
        async with self._session.get(f"{self.url}/_fake/state?tasks=0") as answer:
            return dict(await answer.json())

    async def end(self) -> None:
        """End it; open polls get an empty answer."""
        await self._session.close()
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()


@asynccontextmanager
async def tls_fake(
    folder: Path, *, hold_seconds: float, module: str = STEP_FUNCTIONS, flags: Sequence[str] = ()
) -> AsyncIterator[TlsFake]:
    """Start a fake with a certificate made in `folder`; it holds an empty poll for `hold_seconds`.

    `module` is STEP_FUNCTIONS or SWF, and `flags` are further ones of its own.
    """
    authority = certificates.authority(folder, "ca")
    own = certificates.issue(authority, folder, "fake", user="fake", addresses=["127.0.0.1"])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, "--port", "0",
        "--poll-hold-seconds", str(hold_seconds), "--tls-certificate", own.certificate, "--tls-key", own.key, *flags,
        stdout=asyncio.subprocess.PIPE, preexec_fn=_many_files,
    )  # fmt: skip
    fake = None
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_START_SECONDS):
            line = (await process.stdout.readline()).decode()
        if not line:
            raise RuntimeError(f"{module} ended before it listened; its output is above")
        fake = TlsFake(process, line.split()[-1], authority.certificate_file)
        yield fake
    finally:
        if fake is not None:
            await fake.end()
        elif process.returncode is None:
            process.kill()
            await process.wait()


def _many_files() -> None:
    """Raise the limit of open files to the maximum, because each open poll is a connection."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
