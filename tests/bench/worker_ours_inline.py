"""The runtime as a library: a consumer, a pool, a handler in the same process, and a listener for every event.

`python -m tests.bench.worker_ours_inline URL ARN SLOTS`. Credentials and region come from the environment.
"""

import sys
from collections import Counter
from typing import Any

import uvloop

from activity_worker import ActivityConsumer, EventEmitter, EventName, SlotPool
from activity_worker.activity import TaskRequest
from activity_worker.sources.stepfunctions import StepFunctionsSource
from activity_worker.wire.stepfunctions import StepFunctionsClient


async def noop(_: TaskRequest) -> dict[str, Any]:
    """Do nothing; return an empty result."""
    return {}


async def work(url: str, arn: str, slots: int) -> None:
    """Run a pool of `slots` workers until killed."""
    counts: Counter[str] = Counter()
    events = EventEmitter()
    for name in EventName:
        events.on(name, lambda *_, name=name.value: counts.update((name,)))
    source = StepFunctionsSource(StepFunctionsClient.open(endpoint_url=url), arn, owns_client=True)
    await ActivityConsumer([SlotPool(source, noop, slots=slots, events=events)]).run()


if __name__ == "__main__":
    uvloop.run(work(sys.argv[1], sys.argv[2], int(sys.argv[3])))
