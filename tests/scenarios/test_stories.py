"""Random faults in random order: busy workers are left alone, limits hold, and all tasks get done.

Runs of thousands of stories (`ACTIVITYPOOL_STORIES`) find two known cases in a few of a thousand. Beside an unreachable
node, a watch that lags by seconds hides which pods a ReplicaSet has. A worker without any report looks like one that
never started once its node is unreachable.
"""

import os
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.unit.activity_operator.core.stories import MAX_WORKERS, SOURCES, Story

#: A hundred stories take ten seconds alone, and took more than two minutes beside every other suite.
pytestmark = pytest.mark.timeout(600)

#: Number of random stories, each time other ones; 0 (default, `make unit`) plays the same 100 every time.
MORE = int(os.environ.get("ACTIVITYPOOL_STORIES", "0"))

Step = tuple[str, dict[str, Any]]


def step(name: str, **drawn: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    """Return a strategy for one step: a method of `Story` and its drawn arguments."""
    return st.tuples(st.just(name), st.fixed_dictionaries(drawn))


which = st.integers(0, 5)
one_or_all = st.none() | which
images = st.sampled_from(["h:1", "h:2", "h:3"])
work = st.fixed_dictionaries({"tasks": st.integers(0, 6), "seconds": st.sampled_from([1.0, 30.0, 100.0, 200.0])})
waits = step("wait", seconds=st.sampled_from([1, 2, 3, 5, 8, 15, 30, 70]))
STEPS = st.one_of(
    waits,
    waits,
    step("wait", seconds=st.sampled_from([100, 200])),
    step("arrive", tasks=st.integers(1, 6), seconds=st.sampled_from([1.0, 5.0, 30.0, 100.0])),
    step("arrive", tasks=st.integers(1, 6), seconds=st.sampled_from([30.0, 100.0, 200.0])),
    step("change_leader", gap=st.sampled_from([0, 1, 3, 20])),
    step("change_leader", gap=st.sampled_from([0, 1, 3, 20])),
    step("upgrade", version=st.sampled_from([1, 2, 2])),
    st.builds(
        lambda which, end: ("crash", {"which": which, "code": end[0], "reason": end[1]}),
        which,
        st.sampled_from([(137, "OOMKilled"), (137, "Error"), (1, "Error"), (0, "Completed")]),
    ),
    step("cut", which=one_or_all, cut=st.booleans()),
    step("lose_node", which=one_or_all, lost=st.booleans()),
    step("evict", which=which),
    step("lag_by", seconds=st.sampled_from([0.0, 0.0, 1.0, 4.0])),
    step("fail_counts", blind=st.booleans()),
    step("edit", handlerImage=images),
    step("edit", maxWorkers=st.integers(1, MAX_WORKERS)),
    step("edit", minWorkers=st.integers(0, 1)),
    step("edit", paused=st.booleans()),
    step("edit", replicas=st.none() | st.integers(0, MAX_WORKERS)),
    step("image", kind=st.sampled_from(["unpullable", "unusable"]), image=images, broken=st.booleans()),
    step("set_start_fault", what=st.just("import_seconds"), value=st.sampled_from([1.0, 20.0, 100.0])),
    step("set_start_fault", what=st.just("bad_node_pods"), value=st.integers(0, 2)),
    step("set_start_fault", what=st.sampled_from(["no_room", "no_quota", "probes_fail"]), value=st.booleans()),
)  # fmt: skip
SKEWS = st.sampled_from([0.0, 0.0, -30.0, -240.0])


@given(
    st.booleans(),
    st.sampled_from(sorted(SOURCES)),
    st.sampled_from([1, 1, 2]),
    SKEWS,
    work,
    st.lists(STEPS, min_size=4, max_size=14),
)
@settings(max_examples=MORE or 100, derandomize=not MORE, deadline=None, print_blob=bool(MORE))
def test_random_faults_interrupt_no_worker_and_all_tasks_get_done(
    restarted: bool, source: str, slots: int, skew: float, first: dict[str, Any], steps: list[Step]
) -> None:
    story = Story(source, slots, skew)
    story.arrive(**first)
    story.wait(6)
    if restarted:
        story.crash(0, 137, "OOMKilled")
        story.wait(8)
    for name, drawn in steps:
        getattr(story, name)(**drawn)
        story.wait(1)
    story.end_faults()
    for name in story.reached:
        if story.reached[name]:
            event(name)
