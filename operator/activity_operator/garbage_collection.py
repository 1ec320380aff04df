"""Short pauses of Python's garbage collector beside thousands of pools.

A full collection visits every container object of the process and holds all threads meanwhile: 170 ms of processor time
with 2,000 pools. Nearly all that it visits are the watched objects, which live long and are freed by reference counts.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

#: A full collection that takes longer is followed by a freeze. The next ones visit only what has been made since, and
#: the longest pause stays near this number, because a full collection comes each second.
FREEZE_AFTER_SECONDS = 0.02
COLLECT_EVERY_SECONDS = 1.0


@asynccontextmanager
async def short_pauses() -> AsyncIterator[None]:
    """Collect each second and freeze what survives a long collection, until the block ends."""
    freezing = freeze_objects()
    collecting = asyncio.create_task(keep_collecting())
    try:
        yield
    finally:
        collecting.cancel()
        gc.callbacks.remove(freezing)
        gc.unfreeze()


async def keep_collecting(every_seconds: float = COLLECT_EVERY_SECONDS) -> None:
    """Make a full collection every `every_seconds`, until cancelled.

    Python collects by the number of objects made and not freed. Objects that replace others do not count: the memory of
    5,000 pools, which each decision makes anew, was 80,000 objects. The next collection visited all of them and took
    100 ms.
    """
    while True:
        await asyncio.sleep(every_seconds)
        gc.collect()


def freeze_objects(clock: Callable[[], float] = time.thread_time) -> Callable[[str, Mapping[str, Any]], None]:
    """Freeze (`gc.freeze`) what survives each long full collection from now on; return the callback that does it.

    What is frozen is still freed when its last reference goes. Only a cycle that becomes garbage after the freeze
    stays; the watched objects and the decisions have no cycles. `clock` returns seconds, by default processor time,
    because a busy machine is no reason to freeze.
    """
    began = 0.0

    def collected(phase: str, info: Mapping[str, Any]) -> None:
        nonlocal began
        if phase == "start":
            began = clock()
        elif info["generation"] == 2 and clock() - began > FREEZE_AFTER_SECONDS:
            gc.freeze()

    gc.callbacks.append(collected)
    return collected
