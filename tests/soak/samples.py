"""The resources of each operator's process: memory, open files, processor time, and some of its metrics."""

import re
from pathlib import Path
from typing import Any

import aiohttp

from tests.faults.replicas import Replica
from tests.soak.growth import Sample

SCRAPE_SECONDS = 3.0
_NAMES = "activitypool_loop_lag_seconds|activitypool_queue_length|activitypool_leader"
_SERIES = re.compile(rf"^({_NAMES}) (\S+)$", re.MULTILINE)
_RSS = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)


async def sample(session: aiohttp.ClientSession, replica: Replica, at: float) -> Sample | None:
    """Measure a replica's process; None while it has none."""
    pid = replica._pid
    try:
        rss, files = _taken(Path(f"/proc/{pid}"))
        ran, waited = _scheduled(Path(f"/proc/{pid}"))
    except (OSError, IndexError):
        return None
    settings: Any = replica._asked["settings"]
    metrics = await _scrape(session, settings["health_port"])
    return Sample(
        at,
        replica.name,
        pid,
        rss,
        files,
        metrics.get("activitypool_loop_lag_seconds"),
        metrics.get("activitypool_queue_length"),
        bool(metrics.get("activitypool_leader")),
        ran,
        waited,
    )


def _taken(process: Path) -> tuple[float, float]:
    """Return resident memory in KB and the number of open files."""
    rss = _RSS.findall((process / "status").read_text())[0]
    return float(rss), float(len(list((process / "fd").iterdir())))


def _scheduled(process: Path) -> tuple[float, float]:
    """Return the seconds that the main thread had a processor, and that it waited for one."""
    ran, waited, _ = (process / "task" / process.name / "schedstat").read_text().split()
    return int(ran) / 1e9, int(waited) / 1e9


async def _scrape(session: aiohttp.ClientSession, port: int) -> dict[str, float]:
    try:
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            return {name: float(value) for name, value in _SERIES.findall(await answer.text())}
    except (aiohttp.ClientError, OSError):  # TimeoutError is an OSError
        return {}
