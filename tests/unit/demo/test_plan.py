"""The work that the demo gives, and the pool that it makes."""

from activity_operator.api.spec import PoolSpec
from tests.demo import plan


def test_tasks_take_two_to_six_seconds_each_another_time() -> None:
    durations = plan.durations()

    assert (len(durations), min(durations), max(durations)) == (40, 2.0, 6.0)
    assert len(set(durations)) == 40


def test_long_and_short_tasks_are_mixed() -> None:
    durations = plan.durations()

    halves = sum(durations[:20]), sum(durations[20:])

    assert abs(halves[0] - halves[1]) < 4


def test_the_pool_is_one_that_the_operator_takes() -> None:
    arn = "arn:aws:states:us-east-1:000000000000:activity:demo"
    spec = PoolSpec.model_validate({"activityArn": arn, "handlerImage": "x", **plan.spec()})

    assert (spec.min_workers, spec.max_workers, spec.slots_per_worker) == (0, 10, 1)


def test_the_introduction_tells_of_the_short_windows_and_the_usual_ones() -> None:
    said = plan.introduction()

    assert "stabilizationWindowSeconds 5 instead of 60" in said
    assert "zeroAfterSeconds 10 instead of 300" in said
