"""The operator as its image runs it, as a process of this machine: its settings, its resources, its end."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import aiohttp

from tests.bench.bench_cluster import POOLS_NAMESPACE, SYSTEM
from tests.bench.tls_fake import TlsFake
from tests.eventually import eventually
from tests.servers.ports import free_port

#: The soft limit of open files on most nodes.
USUAL_OPEN_FILES = 1024
READY_SECONDS = 60.0
END_SECONDS = 30.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """What the process has used: CPU since its start, memory now and at most, open files."""

    cpu_seconds: float
    rss_bytes: int
    peak_rss_bytes: int
    open_files: int


class OperatorPlace(Protocol):
    """Where an operator runs: the kubeconfig of its identity, and a folder for its files."""

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig."""

    @property
    def folder(self) -> Path:
        """The folder."""


class OperatorProcess:
    """A running operator and the fake service that it polls."""

    def __init__(self, process: asyncio.subprocess.Process, fake: TlsFake, health_url: str) -> None:
        self._process = process
        self.fake = fake
        self.health_url = health_url

    def usage(self) -> Usage:
        """Read /proc; raises RuntimeError when the operator has ended."""
        if self._process.returncode is not None:
            raise RuntimeError(f"the operator ended with code {self._process.returncode}")
        own = Path(f"/proc/{self._process.pid}")
        fields = own.joinpath("stat").read_text().rpartition(") ")[2].split()
        status = dict(line.split(":", 1) for line in own.joinpath("status").read_text().splitlines())
        rss, peak = (int(status[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
        files = sum(1 for _ in own.joinpath("fd").iterdir())
        return Usage((int(fields[11]) + int(fields[12])) / _TICKS, rss, peak, files)

    async def leads(self) -> bool:
        """Whether it is ready and leads. Raises RuntimeError when the operator has ended."""
        self.usage()
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.health_url}/readyz") as ready:
                if ready.status != 200:
                    return False
            return "activitypool_leader 1.0" in await self.metrics()
        except aiohttp.ClientError:
            return False

    async def metrics(self) -> str:
        """Return its metrics page."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.health_url}/metrics") as answer:
            return await answer.text()


@asynccontextmanager
async def operating(
    bench_cluster: OperatorPlace, fake: TlsFake, module: str = "activity_operator", **settings: str
) -> AsyncIterator[OperatorProcess]:
    """Start the operator with these variables, and wait until it leads. The fake ends with it."""
    port = free_port()
    log = bench_cluster.folder / "operator.log"
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, env=_environment(bench_cluster, fake, port) | settings,
            cwd=bench_cluster.folder, stdout=out, stderr=out, preexec_fn=_usual_limits,
        )  # fmt: skip
    running = OperatorProcess(process, fake, f"http://127.0.0.1:{port}")
    try:
        await eventually("the operator leads", running.leads, seconds=READY_SECONDS, every_seconds=0.2)
        yield running
    except BaseException:
        print(_last_lines(log), file=sys.stderr, flush=True)
        raise
    finally:
        await _end(process, fake)


async def _end(process: asyncio.subprocess.Process, fake: TlsFake) -> None:
    """End the operator gracefully, which releases the Lease; the fake answers its open polls."""
    if process.returncode is None:
        process.terminate()
    await fake.end()
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _environment(bench_cluster: OperatorPlace, fake: TlsFake, health_port: int) -> dict[str, str]:
    """Return the variables of the chart and the image, with this machine's addresses; the rest has defaults."""
    policy = bench_cluster.folder / "tenancy.json"  # JSON is valid YAML
    policy.write_text(json.dumps({"rules": [{"namespaces": [POOLS_NAMESPACE], "endpointUrls": [fake.url]}]}))
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(bench_cluster.folder),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MALLOC_MMAP_THRESHOLD_": "131072",
        "MALLOC_ARENA_MAX": "2",
        "KUBECONFIG": str(bench_cluster.kubeconfig),
        "POD_NAMESPACE": SYSTEM,
        "ACTIVITYPOOL_TENANCY_FILE": str(policy),
        "ACTIVITYPOOL_HEALTH_HOST": "127.0.0.1",
        "ACTIVITYPOOL_HEALTH_PORT": str(health_port),
        "ACTIVITYPOOL_REPORT_HOST": "127.0.0.1",
        "ACTIVITYPOOL_REPORT_PORT": "0",
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_CA_BUNDLE": str(fake.ca_file),
    }


def _usual_limits() -> None:
    """Set the limit of open files as on most nodes, whatever this shell's limit is."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(USUAL_OPEN_FILES, hard), hard))


def _last_lines(log: Path, count: int = 40) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(["the operator's last words:", *lines[-count:]])
