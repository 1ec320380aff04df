"""Our runners in the steps benchmark: `load URL N SLOTS` or `work URL N SLOTS`."""

import asyncio
import os
import sys
import time
from typing import Any

from activity_worker.steps import RunnerOptions, Task, Tasks, TaskStore

STEPS = 5


async def noop(_: dict[str, Any]) -> None:
    """One step."""


async def now(_: dict[str, Any]) -> dict[str, Any]:
    """Return the time of the call."""
    return {"began": time.time()}


TASKS = Tasks(
    [
        Task("five", ["noop"] * STEPS, methods={"noop": noop}),
        Task("prompt", ["now"], methods={"now": now}),
    ]
)


async def load(store: TaskStore, count: int) -> None:
    """Create the instances."""
    await TASKS.sync(store)
    for number in range(count):
        await TASKS.new(store, "five", {"number": number})


async def main() -> None:
    """Run the command line; `work` prints a line when it is ready, starts at a line on stdin, and runs until killed."""
    mode, url, count, slots = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    store = await TaskStore.open(url)
    if mode == "load":
        await load(store, count)
        await store.close()
        return
    await TASKS.sync(store)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await TASKS.runner(store, RunnerOptions(f"bench-{os.getpid()}", slots=slots)).run()


if __name__ == "__main__":
    asyncio.run(main())
