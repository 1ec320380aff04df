"""Saturation, every slot busy: its start, its workers, and the reports that prove it."""

from dataclasses import replace

import pytest

from activity_operator.core.decide import decide
from activity_operator.core.decision import ScalingMemory
from activity_operator.core.fleet import Fleet
from activity_operator.core.observation import PodFacts, SlotUse, WorkerFacts
from activity_operator.core.saturation import (
    Saturation,
    is_established,
    look_again_at,
    next_step,
    track_saturation,
    unclear_until,
)
from tests.unit.activity_operator.core.builders import NOW, busy, fleet_of, observed, pending, pod, pool, worker

ONE, BOTH = frozenset({"w1"}), frozenset({"w1", "w2"})


def saturation_since(seconds: float, uids: frozenset[str]) -> Saturation:
    """Return a saturation of these workers that began `seconds` ago."""
    return Saturation(NOW - seconds, NOW - seconds, uids)


def fleet_with(*facts: PodFacts | WorkerFacts) -> Fleet:
    return fleet_of(observed(*facts))


@pytest.mark.parametrize(
    ("reports", "saturated"),
    [
        ([busy("w1"), busy("w2")], True),
        ([busy("w1"), worker("w2", idle_seconds=0.1)], True),
        ([worker("w1", idle_seconds=0.1)], True),
        ([busy("w1"), worker("w2", idle_seconds=0.5)], False),
        ([worker("w1")], False),
        ([], False),
        ([busy("w1", reported_at=NOW - 90)], False),
    ],
    ids=[
        "all busy",
        "a short gap",
        "a gap of the only worker",
        "one idle",
        "all idle",
        "no worker",
        "only a silent one",
    ],
)
def test_pool_is_saturated_while_no_worker_is_idle(reports: list[WorkerFacts], saturated: bool) -> None:
    found = track_saturation(fleet_with(*reports), saturation_since(0.3, BOTH))

    assert (None if found is None else found.since) == (NOW - 0.3 if saturated else None)


def test_next_report_of_a_slot_that_was_free_tells_whether_it_stays_busy() -> None:
    """The next report shows the same task, so it starts no decision: without a time, all slots would stay unclear."""
    begun = busy("w1", reported_at=NOW - 0.2, interval_seconds=1.0, use=SlotUse(1.0, 0.1, 1, 0))
    seen = observed(begun, leader_since=NOW - 900)
    first = decide(pool(), seen, ScalingMemory())

    assert first.memory.saturation is None
    assert unclear_until(fleet_with(begun), NOW) == pytest.approx(NOW + 0.9)
    assert first.look_again_in == pytest.approx(0.9)
    later = replace(seen, now=NOW + 0.9, workers=(replace(begun, reported_at=NOW + 0.8, use=SlotUse(1.0, 1.0, 0, 0)),))
    assert decide(pool(), later, first.memory).memory.saturation is not None


def test_late_report_of_a_busy_slot_is_awaited_and_a_free_slot_is_clear() -> None:
    late = busy("w1", reported_at=NOW - 3.0, interval_seconds=1.0)

    assert unclear_until(fleet_with(late), NOW) == NOW + 0.5
    assert unclear_until(fleet_with(late, worker("w2")), NOW) is None
    assert unclear_until(fleet_with(), NOW) is None


def test_saturation_begins_with_the_latest_of_its_reports() -> None:
    fleet = fleet_with(busy("w1", reported_at=NOW - 0.7), busy("w2", reported_at=NOW - 0.2))

    assert track_saturation(fleet, None) == saturation_since(0.2, BOTH)


def test_saturation_includes_joining_and_drops_leaving_workers() -> None:
    before = Saturation(NOW - 60, NOW - 60, BOTH)
    second = busy("w2", reported_at=NOW - 0.1)

    assert track_saturation(fleet_with(busy("w1"), second), saturation_since(60.0, ONE)) == Saturation(
        NOW - 60, NOW - 0.1, BOTH
    )
    assert track_saturation(fleet_with(busy("w1"), pod("w2", deletion_cost=-1000), second), before) == saturation_since(
        60.0, ONE
    )


def test_one_task_at_a_time_on_a_new_worker_does_not_prove_saturation() -> None:
    """Two workers that take turns with one task are not saturated, although one of them is always busy."""
    full = Saturation(NOW - 60, NOW - 0.2, BOTH)
    between, at_work = worker("w1", idle_seconds=0.1), busy("w2")

    assert not is_established(full, fleet_with(between, at_work), NOW)
    assert look_again_at(full, fleet_with(between, at_work), NOW) == pytest.approx(NOW + 0.8)
    assert is_established(full, fleet_with(busy("w1"), at_work), NOW)
    assert is_established(Saturation(NOW - 60, NOW - 1.0, BOTH), fleet_with(between, at_work), NOW)


@pytest.mark.parametrize(("seconds", "proven"), [(0.0, False), (0.99, False), (1.0, True), (60.0, True)])
def test_saturation_is_proven_after_a_second(seconds: float, proven: bool) -> None:
    fleet, full = fleet_with(busy("w1")), saturation_since(seconds, ONE)

    assert is_established(full, fleet, NOW) is proven
    assert look_again_at(full, fleet, NOW) == (None if proven else pytest.approx(NOW - seconds + 1.0))


def test_report_from_before_saturation_does_not_prove_it() -> None:
    """In a large fleet a worker reports every ten seconds, and the reported task may long be done."""
    old = busy("w1", reported_at=NOW - 7.0, interval_seconds=10.0)
    fleet, full = fleet_with(old, busy("w2")), saturation_since(5.0, BOTH)

    assert not is_established(full, fleet, NOW)
    assert look_again_at(full, fleet, NOW) == pytest.approx(NOW + 3.1)
    again = fleet_with(busy("w1", reported_at=NOW - 5.0), busy("w2"))
    assert is_established(full, again, NOW)


def test_late_report_is_awaited_at_half_second_intervals() -> None:
    late = busy("w1", reported_at=NOW - 2.0, interval_seconds=1.0)

    assert look_again_at(saturation_since(1.5, BOTH), fleet_with(late, busy("w2")), NOW) == NOW + 0.5


@pytest.mark.parametrize(
    ("use", "idle_seconds", "saturated"),
    [
        (SlotUse(10.0, 0.91, 9, 0), 0.1, True),
        (SlotUse(10.0, 0.95, 1, 0), 0.1, True),
        (SlotUse(10.0, 0.75, 25, 0), 0.1, True),
        (SlotUse(10.0, 0.75, 4, 0), 0.1, False),
        (SlotUse(10.0, 0.95, 9, 1), 0.1, False),
        (SlotUse(10.0, 0.95, 9, 0), 0.5, False),
        (SlotUse(10.0, 0.2, 1, 0, joined=True), 0.1, True),
        (SlotUse(10.0, 0.2, 0, 0, joined=True), 0.5, False),
    ],
    ids=[
        "short tasks",
        "long tasks",
        "very short tasks",
        "long waits",
        "an empty poll",
        "idle at the report",
        "a new worker",
        "an idle new worker",
    ],
)
def test_counters_between_reports_show_whether_tasks_wait(use: SlotUse, idle_seconds: float, saturated: bool) -> None:
    """The report is eight seconds old, and showed a free slot."""
    report = worker("w1", use=use, idle_seconds=idle_seconds, reported_at=NOW - 8.0, interval_seconds=10.0)

    assert (track_saturation(fleet_with(report), None) is not None) == saturated


@pytest.mark.parametrize(
    ("use", "saturated"),
    [
        (SlotUse(1.0, 0.6, 2, 0), True),
        (SlotUse(1.0, 0.5, 2, 0), False),
        (SlotUse(1.0, 0.5, 1, 0), False),
        (SlotUse(4.0, 0.7, 1, 0), False),
        (SlotUse(2.0, 0.8, 1, 0), True),
        (SlotUse(1.0, 0.5, 2, 0, joined=True), True),
    ],
    ids=["gaps of a poll", "gaps", "long gaps", "one long gap", "long tasks", "new workers"],
)
def test_mean_gap_between_short_tasks_shows_whether_tasks_wait(use: SlotUse, saturated: bool) -> None:
    """No report alone shows half a second without a task."""
    crew = fleet_with(*(busy(f"w{number}", use=use) for number in range(8)))

    assert (track_saturation(crew, None) is not None) == saturated


def crew(came: int, missing: int = 0) -> Fleet:
    """Return busy workers that came, and pods that have not started."""
    return fleet_with(*(busy(f"w{n}") for n in range(came)), *(pending(f"n{n}") for n in range(missing)))


def after_a_step(*, asked: int, step: int, seconds: float) -> Saturation:
    """Return a saturation whose last step, to `asked` workers, was taken so long ago."""
    members = frozenset(f"w{n}" for n in range(asked))
    return Saturation(NOW - 100.0, NOW - 1.0, members, step=step, asked=asked, asked_at=NOW - seconds)


@pytest.mark.parametrize(("came", "step"), [(6, 8), (5, 4)])
def test_next_step_of_blind_growth_awaits_half_of_the_last_one(came: int, step: int) -> None:
    """Four workers became eight: two of the four new ones are enough, so that a missing pod stops nothing."""
    full = after_a_step(asked=8, step=4, seconds=5.0)

    assert next_step(full, crew(came, 8 - came), NOW).step == min(step, came)


@pytest.mark.parametrize(
    ("came", "missing", "seconds", "given_up"), [(5, 3, 60.0, True), (5, 3, 59.0, False), (4, 4, 60.0, False)]
)
def test_step_is_given_up_after_a_minute_if_most_workers_came(
    came: int, missing: int, seconds: float, given_up: bool
) -> None:
    full = after_a_step(asked=8, step=4, seconds=seconds)

    assert (next_step(full, crew(came, missing), NOW) != full) is given_up
