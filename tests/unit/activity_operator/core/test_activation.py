"""The activation threshold: a pool at zero starts when more tasks wait, and then works until none is left."""

from tests.unit.activity_operator.core.builders import window
from tests.unit.activity_operator.core.load import load_of

OPTION = {"scaling": {"activationThreshold": 3}}


def test_pool_at_zero_stays_there_while_few_tasks_wait() -> None:
    load = load_of("counted", **OPTION)
    load.arrive(3)
    load.run(600)

    assert set(load.sizes) == {0}
    decision = load.harness.settle()
    assert decision.size.limit == "activation"
    assert decision.size.reason == "0 running, 0 held, 3 waiting; the pool starts above 3 (scaling.activationThreshold)"


def test_pool_starts_when_one_task_more_waits_and_finishes_all() -> None:
    load = load_of("counted", window=0, zero_after=10, **OPTION)
    load.arrive(3)
    load.run(60)
    load.arrive(1)
    load.run_until_idle(600, 0)

    assert load.left == 0
    assert load.sizes[-1] == 0


def test_pool_at_work_takes_few_tasks_at_once() -> None:
    """The threshold is for the start alone: a pool that works has no reason to let tasks wait."""
    load = load_of("counted", zero_after=60, **OPTION)
    load.arrive(4)
    load.run(30)
    load.arrive(1)
    load.run(30)

    assert load.left == 0


def test_default_starts_the_pool_at_the_first_task() -> None:
    load = load_of("counted", scaling=dict(window(60)))
    load.arrive(1)
    load.run(5)

    assert load.sizes[-1] == 1
