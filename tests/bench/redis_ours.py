"""Works on a flow's queue with the runtime as a library, with every command of the dialect.

`python -m tests.bench.redis_ours URL SLOTS dialect|atomic`. The queue is `bench` of the flow `bench`.
"""

import sys
from typing import Any

import uvloop

from activity_worker import ActivityConsumer, SlotPool
from activity_worker.activity import TaskRequest
from activity_worker.sources.redis import RedisSource
from activity_worker.sources.redis_job import RedisQueue
from activity_worker.wire.redis_connection import open_client

QUEUE = "bench"


async def noop(_: TaskRequest) -> dict[str, Any]:
    """Do nothing; return an empty result."""
    return {"done": True}


async def work(url: str, slots: int, conclude: str) -> None:
    """Run a pool of `slots` workers until killed."""
    queue = RedisQueue(flow=QUEUE, name=QUEUE, attributes=("number",))
    source = RedisSource(open_client(url), queue, atomic=conclude == "atomic", owns_client=True)
    await ActivityConsumer([SlotPool(source, noop, slots=slots)]).run()


if __name__ == "__main__":
    uvloop.run(work(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
