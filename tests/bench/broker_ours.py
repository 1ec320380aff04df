"""A taskbroker's worker as a library, one process: `python -m tests.bench.broker_ours ADDRESS SLOTS [LOG]`.

With LOG the handler writes how long after its sending each task began; its argument is the time of the sending.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from activity_worker import ActivityConsumer, SlotPool
from activity_worker.activity import TaskRequest
from activity_worker.config.sources import TaskbrokerSettings
from activity_worker.sources.taskbroker import TaskbrokerSource


async def noop(_: TaskRequest) -> dict[str, Any]:
    """Do nothing; return an empty result."""
    return {}


async def work(address: str, slots: int, log: str) -> None:
    """Run a pool of `slots` slots until killed."""
    delays = Path(log or os.devnull).open("ab", buffering=0)  # noqa: ASYNC230, SIM115 - it is open until the end

    async def note(request: TaskRequest) -> dict[str, Any]:
        delays.write(f"{time.time() - request.input['sent']}\n".encode())
        return {}

    source = TaskbrokerSource(TaskbrokerSettings((address,), None, None))
    await ActivityConsumer([SlotPool(source, note if log else noop, slots=slots)]).run()


if __name__ == "__main__":
    uvloop.run(work(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""))
