"""Conditions keep their transition times, and hold only what is true now."""

from datetime import UTC, datetime, timedelta

import pytest

from activity_operator.api.conditions import Condition, ConditionType, Reason, find, merge

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)
READY = Condition(ConditionType.READY, "True", Reason.POOL_READY, "2 workers are ready", 1)


def test_first_condition_gets_the_current_time() -> None:
    (ready,) = merge((), [READY], NOON)

    assert ready.last_transition_time == NOON


def test_unchanged_status_keeps_its_time_when_reason_changes() -> None:
    old = merge((), [READY], NOON)
    (ready,) = merge(old, [Condition(ConditionType.READY, "True", Reason.SCALED_TO_ZERO, "no work", 2)], LATER)

    assert (ready.last_transition_time, ready.reason, ready.observed_generation) == (NOON, Reason.SCALED_TO_ZERO, 2)


def test_changed_status_gets_the_current_time() -> None:
    old = merge((), [READY], NOON)
    (ready,) = merge(old, [Condition(ConditionType.READY, "False", Reason.ACCESS_DENIED, "denied", 1)], LATER)

    assert ready.last_transition_time == LATER


def test_condition_that_is_no_longer_given_is_dropped() -> None:
    old = merge((), [READY, Condition(ConditionType.STALLED, "True", Reason.INVALID_SPEC)], NOON)

    assert [condition.type for condition in merge(old, [READY], LATER)] == [ConditionType.READY]


def test_order_of_conditions_does_not_depend_on_their_input_order() -> None:
    paused = Condition(ConditionType.PAUSED, "True", Reason.PAUSED)

    assert merge((), [paused, READY], NOON) == merge((), [READY, paused], NOON)


def test_merging_twice_changes_nothing() -> None:
    once = merge((), [READY], NOON)

    assert merge(once, once, LATER) == once


def test_condition_survives_the_round_trip_through_the_api_server() -> None:
    (ready,) = merge((), [READY], NOON)

    assert Condition.from_dict(ready.as_dict()) == ready


def test_condition_without_a_time_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="merge it first"):
        READY.as_dict()


def test_unknown_reason_keeps_the_time_of_its_status() -> None:
    raw = {**merge((), [READY], NOON)[0].as_dict(), "reason": "FromTheFuture"}
    old = Condition.from_dict(raw)
    assert old is not None

    assert merge([old], [READY], LATER)[0].last_transition_time == NOON


@pytest.mark.parametrize("raw", [{}, {"type": "Unheard", "status": "True", "reason": "A"}, {"type": "Ready"}])
def test_unknown_or_incomplete_condition_is_skipped(raw: dict[str, str]) -> None:
    assert Condition.from_dict(raw) is None


def test_condition_is_found_by_its_type() -> None:
    assert find([READY], ConditionType.READY) is READY
    assert find([READY], ConditionType.STALLED) is None
