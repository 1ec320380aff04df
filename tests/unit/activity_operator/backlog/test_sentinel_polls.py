"""The number of polls that may be opened, and their times."""

from hypothesis import given
from hypothesis import strategies as some

from activity_operator.backlog.sentinel_polls import PollState, may_open, stagger_seconds
from activity_operator.core.decision import SentinelOrder

few = some.integers(0, 60)


@given(polls=few, take=few, leases=few, open_polls=few)
def test_leases_and_open_polls_together_stay_within_the_order(
    polls: int, take: int, leases: int, open_polls: int
) -> None:
    opened = may_open(SentinelOrder(polls, take), leases, PollState(open=open_polls))

    assert opened >= 0
    if opened:
        assert open_polls + opened <= polls
        assert leases + open_polls + opened <= max(take, 2 if take and not leases else 0)


def test_pool_at_rest_has_two_polls_even_if_it_may_take_one_lease() -> None:
    assert may_open(SentinelOrder(2, 1), 0, PollState()) == 2


def test_no_poll_is_opened_once_the_only_lease_is_held() -> None:
    assert may_open(SentinelOrder(2, 1), 1, PollState(open=1)) == 0
    assert may_open(SentinelOrder(2, 1), 1, PollState()) == 0


def test_pool_that_may_take_no_lease_opens_no_poll() -> None:
    assert may_open(SentinelOrder(2, 0), 0, PollState()) == 0


def test_fan_out_opens_polls_up_to_the_order() -> None:
    assert may_open(SentinelOrder(10, 40), 1, PollState(open=2)) == 8
    assert may_open(SentinelOrder(10, 5), 2, PollState(open=2)) == 1


def test_polls_at_rest_are_staggered_and_a_fan_out_is_not() -> None:
    one = PollState(open=1, last_opened=100.0, hold_seconds=60.0)

    assert stagger_seconds(SentinelOrder(2, 2), one, 110.0) == 20.0
    assert stagger_seconds(SentinelOrder(10, 40), one, 110.0) == 0.0
    assert stagger_seconds(SentinelOrder(2, 2), PollState(last_opened=100.0), 110.0) == 0.0
