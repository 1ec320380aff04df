"""When the demo has succeeded, when it gives up, and what it says last."""

from dataclasses import replace

import pytest

from tests.demo import plan, verdict
from tests.demo.facts import Pool
from tests.demo.scene import PodNews, Scene, Started, Statuses
from tests.demo.verdict import Outcome, failures, impatience, last_line, over
from tests.unit.demo.stories import begun, pod, there_and_back, told

GOOD = Outcome(
    executions=40,
    succeeded=40,
    workers_before=0,
    most_workers=10,
    workers_left=0,
    first_replica_seconds=0.284,
    interrupted=0,
    lost=0,
)


def test_the_last_line_has_the_measured_values() -> None:
    assert last_line(GOOD) == (
        "demo: 40/40 executions succeeded, workers 0 -> 10 -> 0, first replica after 0.28 s, 0 tasks interrupted"
    )


def test_the_last_line_of_a_failure_has_them_too() -> None:
    bad = replace(GOOD, succeeded=38, most_workers=7, workers_left=2, first_replica_seconds=None, interrupted=3)

    assert last_line(bad) == (
        "demo: 38/40 executions succeeded, workers 0 -> 7 -> 2, first replica after - s, 3 tasks interrupted"
    )


def test_unknown_is_not_zero() -> None:
    assert last_line(replace(GOOD, interrupted=None)).endswith("first replica after 0.28 s, ? tasks interrupted")


@pytest.mark.parametrize(
    ("seconds", "written"), [(0.284, "0.28"), (0.994, "0.99"), (0.996, "1.0"), (1.26, "1.3"), (12.04, "12.0")]
)
def test_seconds_have_one_decimal_and_two_below_one(seconds: float, written: str) -> None:
    assert f"after {written} s" in last_line(replace(GOOD, first_replica_seconds=seconds))


def test_a_run_that_keeps_every_promise_has_no_failures() -> None:
    assert failures(GOOD) == []


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ({"executions": 39}, "the service knows 39 executions instead of 40"),
        ({"succeeded": 39}, "1 of 40 executions did not succeed"),
        ({"workers_before": 1}, "the pool had 1 workers before there was work"),
        ({"most_workers": 9}, "9 workers were ready at once instead of 10"),
        ({"workers_left": 1}, "the pool did not come back to zero: 1 workers are left"),
        ({"first_replica_seconds": None}, "no replica was written"),
        ({"interrupted": 1}, "1 tasks were interrupted: a worker began them and did not conclude them"),
        (
            {"interrupted": None},
            "whether tasks were interrupted is not known: the emulator does not tell the histories",
        ),
        ({"lost": 2}, "2 tasks were lost or failed, and handed out again or not"),
        ({"given_up": "too slow"}, "too slow"),
    ],
)
def test_each_broken_promise_is_a_failure(broken: dict[str, int | str | None], sentence: str) -> None:
    assert failures(replace(GOOD, **broken)) == [sentence]  # type: ignore[arg-type]


def test_it_is_over_when_all_have_ended_and_the_pool_is_at_zero() -> None:
    assert over(there_and_back())
    assert not over(begun())
    assert not over(told([(150, Statuses({"SUCCEEDED": 40})), (150, PodNews(pod("a")))], begun()))


def test_a_healthy_run_is_waited_for() -> None:
    assert impatience(Scene(), 50.0, opened=0.0) == ""
    assert impatience(begun(100.0), 300.0, opened=90.0) == ""
    assert impatience(there_and_back(), 250.0, opened=90.0) == ""


def test_a_pool_that_is_never_looked_at_is_given_up() -> None:
    assert "the operator has not looked" in impatience(Scene(), verdict.READY_SECONDS + 1, opened=0.0)


def test_a_pool_that_stays_unready_is_given_up_with_the_operators_reason() -> None:
    bad = told([(110, Pool("False", "ImagePullFailed", "no such image"))], begun(100.0))
    again = told([(140, Pool("False", "ImagePullFailed", "no such image, still"))], bad)

    assert impatience(again, 110 + verdict.NOT_READY_SECONDS, opened=90.0) == ""
    assert "ImagePullFailed: no such image, still" in impatience(again, 111 + verdict.NOT_READY_SECONDS, opened=90.0)


def test_a_silent_emulator_is_given_up() -> None:
    silent = told([(110, Statuses({}, "refused"))], begun(100.0))

    assert impatience(silent, 115.0, opened=90.0) == ""
    assert "refused" in impatience(silent, 111 + verdict.SILENCE_SECONDS, opened=90.0)


def test_an_emulator_that_forgot_executions_is_given_up_at_once() -> None:
    forgot = told([(110, Statuses({"RUNNING": 0}))], begun(100.0))

    assert "no longer knows 40 of 40 executions" in impatience(forgot, 110.0, opened=90.0)


def test_executions_that_are_not_all_started_are_not_missing() -> None:
    starting = told([(100, Started(0)), (100.1, Started(10)), (100.2, Statuses({"RUNNING": 9}))])

    assert impatience(starting, 100.3, opened=90.0) == ""


def test_executions_that_do_not_end_are_given_up() -> None:
    assert "40 queued" in impatience(begun(100.0), 101 + verdict.EXECUTIONS_SECONDS, opened=90.0)


def test_workers_that_do_not_leave_are_given_up() -> None:
    ended = told([(120, PodNews(pod("a"))), (150, Statuses({"SUCCEEDED": plan.EXECUTIONS}))], begun(100.0))

    assert "1 starting left" in impatience(ended, 151 + verdict.ZERO_SECONDS, opened=90.0)
