"""Start of a worker, from its process to its first poll, by the clock and in CPU time; and the sizes of its images."""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

from tests.bench.table import Row
from tests.bench.worker_processes import ARN, Cores, cores, cpu_seconds, running, server
from tests.cluster import catalogue, images
from tests.cluster.lifecycle import uses_kind
from tests.eventually import eventually_sync

ROUNDS = 7


def run() -> list[Row]:
    """Start workers one after the other, and return the rows. Raises MissingError for an image that is not built."""
    where = cores()
    measured = [_start(where) for _ in range(ROUNDS)]
    how = f"activity-worker run, one slot, a no-op handler; median of {ROUNDS}, {where}"
    clock, used = (f"{median(values):.2f} s" for values in zip(*measured, strict=True))
    return [
        Row("start of a worker: until its first poll", clock, how=how),
        Row("start of a worker: CPU time until then", used, how="the same runs"),
        *_image_rows(),
    ]


def _image_rows() -> list[Row]:
    """Return the sizes of the images; with Docker there are no archives to measure."""
    if uses_kind():
        return []
    recipes = {"whole": catalogue.worker(), "slim": catalogue.slim_worker()}
    sizes = {name: images.find(recipe).stat().st_size / 1e6 for name, recipe in recipes.items()}
    how = "its archive, uncompressed, with Debian's base"
    return [Row(f"image of the worker, {name}", f"{size:.0f} MB", how=how) for name, size in sizes.items()]


def _start(where: Cores) -> tuple[float, float]:
    with server(where.server) as fake:
        fake.schedule(0)
        began = time.monotonic()
        command = [sys.executable, "-m", "activity_worker", "run", "tests.bench.worker_handlers:noop"]
        with running(
            [*command, "--activity-arn", ARN, "--endpoint-url", fake.url],
            where.contender,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            eventually_sync("the first poll is open", lambda: fake.open_polls() > 0, seconds=60.0)
            took, used = time.monotonic() - began, cpu_seconds(process.pid)
            fake.kill()
    return took, used
