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


PAGE = """
import gc, json
from activity_operator import garbage_collection

garbage_collection.raise_threshold()
gc.collect()
phases = []
gc.callbacks.append(lambda phase, info: phases.append(phase))
objects = [{"metadata": {"labels": {"a": "b"}}, "spec": [[number] for number in range(140)]} for _ in range(100)]
text = json.dumps(objects)
del objects
phases.clear()
for _ in range(10):
    json.loads(text)
print(len(phases))
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


def test_pages_of_a_list_cause_no_collection() -> None:
    assert run(PAGE) == ["0"]
