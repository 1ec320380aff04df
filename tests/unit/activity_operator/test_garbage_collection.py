"""Tests of the garbage collector's pauses, in a process of their own: a freeze would bind the suite's objects."""

import subprocess
import sys

import pytest

PROGRAM = """
import gc, sys
from activity_operator import garbage_collection

now = 0.0
def clock():
    return now
collected = garbage_collection.freeze_objects(clock)

def take(seconds, generation=2):
    global now
    collected("start", {"generation": generation})
    now += seconds
    collected("stop", {"generation": generation})
    print(gc.get_freeze_count() > 0)

{calls}
"""

REAL = """
import gc, itertools, weakref
from activity_operator import garbage_collection

class Node: pass

garbage_collection.freeze_objects(itertools.count().__next__)
pools = [{"spec": [number]} for number in range(100_000)]
gc.collect()
print(gc.get_freeze_count() > 200_000)
cycle = Node()
cycle.itself = cycle
ends = weakref.ref(cycle)
del cycle
print(len(gc.get_objects()) < 10_000)
gc.collect()
print(ends() is None)
del pools
print(gc.get_freeze_count() < 100_000)
"""


EACH_SECOND = """
import asyncio, gc, weakref
from activity_operator import garbage_collection

class Node: pass

async def main():
    collecting = asyncio.create_task(garbage_collection.keep_collecting(0.001))
    cycle = Node()
    cycle.itself = cycle
    ends = weakref.ref(cycle)
    del cycle
    async with asyncio.timeout(10):
        while ends() is not None:
            await asyncio.sleep(0)
    print(collecting.cancel())

gc.disable()
asyncio.run(main())
"""


BLOCK = """
import asyncio, gc
from activity_operator import garbage_collection

async def main():
    callbacks = len(gc.callbacks)
    async with garbage_collection.short_pauses():
        print(len(asyncio.all_tasks()) == 2, len(gc.callbacks) == callbacks + 1)
        gc.freeze()
    print(gc.get_freeze_count() == 0, len(gc.callbacks) == callbacks)

asyncio.run(main())
"""


def run(program: str) -> list[str]:
    """Run a program in another process and return its words."""
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize(
    ("call", "frozen"),
    [("take(0.019)", "False"), ("take(0.021)", "True"), ("take(1.0, generation=1)", "False")],
)
def test_only_what_survives_a_long_full_collection_is_frozen(call: str, frozen: str) -> None:
    assert run(PROGRAM.replace("{calls}", call)) == [frozen]


def test_later_collections_visit_only_what_is_new_and_still_free_cycles() -> None:
    assert run(REAL) == ["True", "True", "True", "True"]


def test_collections_do_not_wait_for_many_new_objects() -> None:
    assert run(EACH_SECOND) == ["True"]


def test_nothing_stays_frozen_after_the_block() -> None:
    assert run(BLOCK) == ["True", "True", "True", "True"]
