"""The runtime as a library on a task list of Amazon SWF: a consumer with a handler in the same process.

`python -m tests.bench.worker_ours_swf URL DOMAIN TASK_LIST SLOTS`. Credentials and region come from the environment.
"""

import sys

import uvloop

from activity_worker import ActivityConsumer, SlotPool
from activity_worker.sources.swf import SwfSource
from activity_worker.wire.swf import SwfClient
from tests.bench.worker_ours_inline import noop


async def work(url: str, domain: str, task_list: str, slots: int) -> None:
    """Run a pool of `slots` workers until killed."""
    source = SwfSource(SwfClient.open(endpoint_url=url), domain, task_list, owns_client=True)
    await ActivityConsumer([SlotPool(source, noop, slots=slots)]).run()


if __name__ == "__main__":
    uvloop.run(work(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
