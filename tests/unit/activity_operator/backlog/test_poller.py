"""How many polls may be opened, and when."""

from hypothesis import given
from hypothesis import strategies as some

from activity_operator.backlog.poller import Polls, may_open, stagger_seconds
from activity_operator.core.decision import SentinelOrder

few = some.integers(0, 60)


@given(polls=few, take=few, leases=few, open_polls=few)
def test_leases_and_open_polls_together_stay_within_what_the_pool_may_take(
    polls: int, take: int, leases: int, open_polls: int
) -> None:
    opened = may_open(SentinelOrder(polls, take), leases, Polls(open=open_polls))

    assert opened >= 0
    if opened:
        assert open_polls + opened <= polls
        assert leases + open_polls + opened <= max(take, 2 if take and not leases else 0)


def test_at_rest_there_are_two_polls_even_if_one_lease_is_all_the_pool_may_take() -> None:
    assert may_open(SentinelOrder(2, 1), 0, Polls()) == 2


def test_with_the_one_lease_in_hand_no_poll_is_opened() -> None:
    assert may_open(SentinelOrder(2, 1), 1, Polls(open=1)) == 0
    assert may_open(SentinelOrder(2, 1), 1, Polls()) == 0


def test_a_pool_that_may_take_nothing_polls_for_nothing() -> None:
    assert may_open(SentinelOrder(2, 0), 0, Polls()) == 0


def test_a_fan_out_opens_what_there_is_room_for() -> None:
    assert may_open(SentinelOrder(10, 40), 1, Polls(open=2)) == 8
    assert may_open(SentinelOrder(10, 5), 2, Polls(open=2)) == 1


def test_resting_polls_are_half_a_hold_apart_and_a_fan_out_is_not() -> None:
    one = Polls(open=1, last_opened=100.0, hold_seconds=60.0)

    assert stagger_seconds(SentinelOrder(2, 2), one, 110.0) == 20.0
    assert stagger_seconds(SentinelOrder(10, 40), one, 110.0) == 0.0
    assert stagger_seconds(SentinelOrder(2, 2), Polls(last_opened=100.0), 110.0) == 0.0
