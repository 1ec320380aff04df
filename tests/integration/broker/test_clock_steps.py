"""A broker's clock steps by an hour at any write: nothing is lost, and a task at most once runs at most once."""

import pytest

from activity_worker.taskbroker.store.broker_store import BrokerStore
from tests.clock import Clock
from tests.integration.broker.conftest import POLICY
from tests.integration.broker.story import AT_MOST_ONCE, LETTERS, RUNS, Story
from tests.unit.activity_worker.taskbroker.activations import NOW

HOUR = 3600.0
#: Every write of the story, and some that a step adds to it.
WRITES = range(1, 46)


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_clock_steps_at_each_write(url: str, step: float, part: int) -> None:
    await (await BrokerStore.open(url)).close()
    for write in WRITES[part::3]:
        # Later than the stories before: the store keeps the ids of their tasks for a while.
        clock = Clock(NOW + write * 1_000_000)
        story = Story(url, patience_seconds=1800.0 if step < 0 else 20.0, clock=clock)

        def stepping(number: int, story: Story = story, write: int = write) -> None:
            if number == write:
                story.clock.now += step

        story.observe = stepping
        await story.run()
        letters = await story.letters()
        await story.close()
        check(story, letters, f"{step:+g} s at write {write}: {dict(story.runs)}, {letters}")


def check(story: Story, letters: dict[str, str], where: str) -> None:
    """Judge a story in which deadlines, delays and expiries came an hour early or late."""
    for name, runs in RUNS.items():
        if name in AT_MOST_ONCE:
            assert story.runs[name] <= 1, where
        elif name == "hopeless":
            assert story.runs[name] <= POLICY.max_attempts, where
        else:
            # A deadline that passes early is an attempt, and no retry; the worker's report counts all the same.
            assert story.runs[name] == runs, where
    # An early expiry is the same one. Tasks that were not lost before are not lost now.
    once = {name: "deadline" for name in AT_MOST_ONCE if name in letters}
    assert letters == LETTERS | once, where
    assert story.runs["once"] == 1 or "once" in letters, where
