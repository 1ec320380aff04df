"""Short pauses of Python's garbage collector beside thousands of pools.

A full collection visits every container object of the process and holds all threads meanwhile: 170 ms of processor time
with 2,000 pools. Nearly all that it visits are the watched objects, which live long and are freed by reference counts.
"""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

#: A full collection that takes longer is followed by a freeze. The next ones visit only what has been made since, and
#: the longest pause stays near this number, because a full collection comes each time the heap has grown by a quarter.
FREEZE_AFTER_SECONDS = 0.02

#: Containers made and not freed since the last collection, after which Python collects (700 by default). A page of a
#: LIST is decoded into 15,000 at once, which are no garbage: with 700, each page caused 20 collections.
COLLECT_AFTER_OBJECTS = 50_000


def raise_threshold() -> None:
    """Let Python collect only after `COLLECT_AFTER_OBJECTS` new containers."""
    gc.set_threshold(COLLECT_AFTER_OBJECTS, *gc.get_threshold()[1:])


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
