"""Every slot busy: since when, of which crew, and by how recent words."""

import pytest

from activity_operator.core.fleet import Fleet
from activity_operator.core.observation import PodFacts, WorkerFacts
from activity_operator.core.saturation import Saturation, is_proven, look_again_at, saturation
from tests.unit.activity_operator.core.builders import NOW, busy, crew, pod, seen, worker

ONE, BOTH = frozenset({"w1"}), frozenset({"w1", "w2"})


def began(seconds: float, crew: frozenset[str]) -> Saturation:
    """Return a saturation that began so long ago, with all who were there."""
    return Saturation(NOW - seconds, NOW - seconds, crew)


def of(*facts: PodFacts | WorkerFacts) -> Fleet:
    return crew(seen(*facts))


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
    ids=["all busy", "a short gap", "a gap of the only worker", "one idle", "all idle", "nobody", "only a silent one"],
)
def test_the_pool_is_saturated_while_nobody_is_idle(reports: list[WorkerFacts], saturated: bool) -> None:
    found = saturation(of(*reports), began(0.3, BOTH))

    assert (None if found is None else found.since) == (NOW - 0.3 if saturated else None)


def test_it_counts_from_the_last_word_that_made_it_so() -> None:
    fleet = of(busy("w1", reported_at=NOW - 0.7), busy("w2", reported_at=NOW - 0.2))

    assert saturation(fleet, None) == began(0.2, BOTH)


def test_who_joins_is_remembered_and_who_leaves_is_not() -> None:
    before = Saturation(NOW - 60, NOW - 60, BOTH)
    second = busy("w2", reported_at=NOW - 0.1)

    assert saturation(of(busy("w1"), second), began(60.0, ONE)) == Saturation(NOW - 60, NOW - 0.1, BOTH)
    assert saturation(of(busy("w1"), pod("w2", deletion_cost=-1000), second), before) == began(60.0, ONE)


def test_the_next_task_of_a_trickle_that_goes_to_a_newcomer_is_no_backlog() -> None:
    """One task at a time: the second worker came, took the next one, and with the first one's time was doubled."""
    full = Saturation(NOW - 60, NOW - 0.2, BOTH)
    between, at_work = worker("w1", idle_seconds=0.1), busy("w2")

    assert not is_proven(full, of(between, at_work), NOW)
    assert look_again_at(full, of(between, at_work), NOW) == pytest.approx(NOW + 0.8)
    assert is_proven(full, of(busy("w1"), at_work), NOW)
    assert is_proven(Saturation(NOW - 60, NOW - 1.0, BOTH), of(between, at_work), NOW)


@pytest.mark.parametrize(("seconds", "proven"), [(0.0, False), (0.99, False), (1.0, True), (60.0, True)])
def test_it_is_proven_after_a_second(seconds: float, proven: bool) -> None:
    fleet, full = of(busy("w1")), began(seconds, ONE)

    assert is_proven(full, fleet, NOW) is proven
    assert look_again_at(full, fleet, NOW) == (None if proven else pytest.approx(NOW - seconds + 1.0))


def test_a_word_from_before_it_began_proves_nothing() -> None:
    """In a large fleet a worker reports each ten seconds: what it said of its task may be long over."""
    old = busy("w1", reported_at=NOW - 7.0, interval_seconds=10.0)
    fleet, full = of(old, busy("w2")), began(5.0, BOTH)

    assert not is_proven(full, fleet, NOW)
    assert look_again_at(full, fleet, NOW) == pytest.approx(NOW + 3.1)
    again = of(busy("w1", reported_at=NOW - 5.0), busy("w2"))
    assert is_proven(full, again, NOW)


def test_a_late_report_is_waited_for_and_not_asked_for_all_the_time() -> None:
    late = busy("w1", reported_at=NOW - 2.0, interval_seconds=1.0)

    assert look_again_at(began(1.5, BOTH), of(late, busy("w2")), NOW) == NOW + 0.5
