"""`activity-worker run` on a Redis queue, as in a pool."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests import measuring

_ROOT = Path(__file__).parents[3]


@contextlib.asynccontextmanager
async def worker(
    handler: str, url: str, flow: str, queue: str, *flags: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a worker with its queue in the environment; unless it was killed, it must exit with 0 on SIGTERM."""
    queue_of = {"ACTIVITY_REDIS_URL": url, "ACTIVITY_REDIS_FLOW": flow, "ACTIVITY_REDIS_QUEUE": queue}
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "activity_worker", "run", handler, *flags),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(paths), **queue_of, **measuring.environment()},
        cwd=_ROOT,
    )
    try:
        yield process
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 20) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
