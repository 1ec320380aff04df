"""What a pool measures of itself, and how many slots short tasks share because of it."""

from dataclasses import replace

import pytest

from activity_operator.core import target_wait
from activity_operator.core.demand import task_demand
from activity_operator.core.estimates import AWS_POLL_SECONDS, STARTS, Estimates, estimated
from activity_operator.core.observation import SourceFacts, WorkerFacts
from activity_operator.core.situation import Situation, situation_of
from tests.unit.activity_operator.core.builders import NOW, busy, counted, observed, pending, pod, pool, worker

#: Tasks of half a second, pods that start in 3 s, and nothing that runs.
SHORT = Estimates(at=NOW, start_seconds=3.0, busy_seconds=50.0, ended=100.0)
LONG = replace(SHORT, busy_seconds=2000.0)


def situation(*facts: WorkerFacts, now: float = NOW, **more: object) -> Situation:
    return situation_of(pool(maxWorkers=500), observed(*facts, now=now, **more))


def workers_for(waiting: int, known: Estimates, *facts: WorkerFacts, wait: int | None = None) -> int:
    spec = pool(maxWorkers=500, scaling={} if wait is None else {"targetWaitSeconds": wait})
    source = SourceFacts(counts=counted(waiting))
    return task_demand(situation_of(spec, observed(*facts, source=source)), None, 0.0, known).workers


def test_first_report_of_a_new_pod_tells_how_long_it_took_to_start() -> None:
    starting = observed(pending("w1", created=NOW - 4.0), now=NOW)
    before = estimated(situation_of(pool(), starting), Estimates())
    reported = observed(pod("w1", created=NOW - 4.0, ready=False), busy("w1"))
    after = estimated(situation_of(pool(), reported), before)
    later = estimated(situation_of(pool(), replace(reported, now=NOW + 60)), after)

    assert before.start_seconds is None
    assert after.start_seconds == later.start_seconds == 3.5


def test_slowest_pods_of_a_step_are_not_the_usual_start() -> None:
    """Nine pods of one step report in the order of their starts: the last ones took 20 s, most of them 3 s."""
    known = Estimates(at=NOW)
    for number, took in enumerate((2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 4.0, 20.0, 20.0)):
        began = NOW + 100 * number
        seen = observed(
            pod(f"w{number}", created=began), replace(busy(f"w{number}"), reported_at=began), now=began + took + 0.5
        )
        known = estimated(situation_of(pool(), seen), known)

    assert known.start_seconds == 3.0


def test_pods_of_a_changed_image_tell_its_start() -> None:
    known = Estimates(at=NOW, start_seconds=3.0, starts=(3.0,) * STARTS)
    for number in range(STARTS):
        seen = observed(pod(f"w{number}", created=NOW - 8.5), busy(f"w{number}"))
        known = estimated(situation_of(pool(), seen), known)

    assert (known.start_seconds, len(known.starts)) == (8.0, STARTS)


def test_new_leader_learns_the_start_from_pods_that_are_ready() -> None:
    old = observed(pod("w1", created=1000.0, ready_since=1012.0), worker("w1"), leader_since=NOW - 5)

    assert estimated(situation_of(pool(), old), Estimates()).start_seconds == 12.0


@pytest.mark.parametrize("restarts", [1, 3])
def test_restarted_container_tells_nothing_about_a_start(restarts: int) -> None:
    old = observed(pod("w1", ready_since=9000.0, restarts=restarts), worker("w1"), leader_since=NOW - 5)

    assert estimated(situation_of(pool(), old), Estimates()).start_seconds is None


def test_duration_of_tasks_is_the_work_over_the_tasks_that_ended() -> None:
    first = estimated(situation(busy("w1", busy_seconds=10.0, ended=5)), Estimates())
    second = estimated(situation(busy("w1", busy_seconds=18.0, ended=9), now=NOW + 10), first)

    assert first.task_seconds is None
    assert second.task_seconds == pytest.approx(2.0)


def test_duration_is_at_least_the_age_of_the_running_tasks() -> None:
    first = estimated(situation(busy("w1", busy_seconds=10.0, ended=5)), Estimates())
    second = estimated(situation(busy("w1", busy_seconds=18.0, ended=9, running_seconds=30.0), now=NOW + 10), first)

    assert second.task_seconds == 30.0


def test_container_that_started_again_gives_a_new_base_line() -> None:
    first = estimated(situation(busy("w1", busy_seconds=10.0, ended=5)), Estimates())
    again = estimated(situation(busy("w1", busy_seconds=1.0, ended=1), now=NOW + 10), first)

    assert again.ended == 0.0


def test_means_follow_the_running_tasks_at_their_own_pace() -> None:
    known = estimated(situation(busy("w1")), Estimates())
    later = estimated(situation(busy("w1"), now=NOW + 30), known)

    assert later.fast > later.short > later.long > 0
    assert later.steady == (later.short + later.long) / 2


def test_steady_load_of_a_falling_one_is_the_shorter_mean() -> None:
    assert Estimates(fast=9.0, short=12.0, long=20.0).steady == 12.0
    assert Estimates(fast=20.0, short=18.0, long=12.0).steady == 15.0


def test_few_long_tasks_do_not_hide_that_most_tasks_are_short() -> None:
    """The 16 running tasks are 170 s old on average, and those that end have run for 25 s."""
    mixed = Estimates(busy_seconds=1000.0, ended=40.0, mean_age=170.0)

    assert mixed.new_share_seconds == pytest.approx(43.6, abs=0.1)
    assert LONG.new_share_seconds == pytest.approx(20.0)
    assert Estimates().new_share_seconds is None


def test_counters_tell_the_load_of_short_tasks_that_no_report_shows() -> None:
    """Each report comes when the worker is free for a moment; its slot had tasks for half of the time."""
    known = estimated(situation(worker("w1", busy_seconds=10.0, ended=20)), Estimates())
    for second in range(1, 121):
        facts = worker("w1", busy_seconds=10.0 + 0.5 * second, ended=20 + second, reported_at=NOW + second)
        known = estimated(situation(facts, now=NOW + second), known)
    polls = AWS_POLL_SECONDS

    assert (known.running, known.short, known.long) == (0, 0.0, 0.0)
    assert known.steady == pytest.approx(0.5 + polls, rel=0.15)
    assert known.occupied == pytest.approx(0.5 + polls, rel=0.3)


def test_occupied_slots_raise_the_demand_of_short_tasks_without_a_count() -> None:
    known = replace(SHORT, occupied=6.0)
    seen = situation_of(pool(maxWorkers=500), observed(busy("w1"), worker("w2")))

    assert task_demand(seen, None, 0.0, replace(known, occupied=1.8)).workers == 2
    assert task_demand(seen, None, 0.0, known).workers == 2
    assert task_demand(seen, None, 0.0, replace(known, busy_seconds=500.0)).workers == 1
    assert workers_for(0, known, busy("w1"), worker("w2")) == 1


def test_short_tasks_share_the_slots_that_they_start() -> None:
    assert workers_for(300, SHORT) == 75
    assert workers_for(300, SHORT, wait=0) == 300
    assert workers_for(300, SHORT, wait=10) == 15


def test_tasks_longer_than_the_target_wait_get_a_slot_each() -> None:
    assert workers_for(40, LONG) == 40


def test_unknown_duration_or_start_gives_each_task_a_slot() -> None:
    assert workers_for(300, Estimates()) == 300
    assert workers_for(300, replace(SHORT, start_seconds=None)) == 300


def test_few_tasks_wait_for_busy_slots_that_are_about_to_be_free() -> None:
    """Ten slots of 2.5 s each end within 3 s; at the usual load, five of the tasks that come take them."""
    known = replace(SHORT, busy_seconds=250.0, fast=5.0)
    ten = [busy(f"w{number}") for number in range(10)]

    assert workers_for(4, known, *ten, wait=3) == 10
    assert workers_for(4, replace(known, fast=10.0), *ten, wait=3) == 12
    assert workers_for(20, known, *ten, wait=3) == 18


def test_slots_beyond_the_swings_of_the_load_take_several_short_tasks() -> None:
    """Twenty slots, ten more than a load of 4 and its swings need: in 5 s each of these ends a second task of 2.5 s."""
    known = replace(SHORT, busy_seconds=250.0, fast=4.0)
    twenty = [busy(f"w{number}") for number in range(20)]

    assert workers_for(28, known, *twenty, wait=5) == 20
    assert workers_for(29, known, *twenty, wait=5) == 21
    assert workers_for(20, replace(known, fast=20.0), *twenty, wait=5) == 27


def test_slot_with_a_claimed_lease_is_one_that_is_about_to_be_free() -> None:
    """Ten workers have claimed leases that no report shows yet: they end twenty more tasks of 2.5 s in 5 s."""
    known = replace(SHORT, busy_seconds=250.0)
    ten = [worker(f"w{number}", open_polls=0) for number in range(10)]
    spec = pool(maxWorkers=500, scaling={"targetWaitSeconds": 5})
    seen = observed(*ten, source=SourceFacts(held=20, claimed=10, at_once=30))

    assert task_demand(situation_of(spec, seen), None, 0.0, known).workers == 10


@pytest.mark.parametrize(("start", "wait"), [(3.0, 1.8), (30.0, target_wait.LONGEST_WAIT_SECONDS), (None, 0.0)])
def test_target_wait_is_a_part_of_the_measured_start_up_to_a_limit(start: float | None, wait: float) -> None:
    assert target_wait.target_wait_seconds(pool(), replace(SHORT, start_seconds=start)) == pytest.approx(wait)
