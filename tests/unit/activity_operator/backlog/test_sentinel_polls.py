"""The number of polls that may be opened, and their times."""

from hypothesis import given
from hypothesis import strategies as some

from activity_operator.backlog.sentinel_polls import (
    AT_ONCE_SECONDS,
    PollState,
    may_open,
    stagger_seconds,
    with_answer,
    with_poll,
)
from activity_operator.core.decision import SentinelOrder

few = some.integers(0, 60)


@given(polls=few, take=few, leases=few, open_polls=few)
def test_leases_and_open_polls_together_stay_within_the_order(
    polls: int, take: int, leases: int, open_polls: int
) -> None:
    opened = may_open(SentinelOrder(polls, take), leases, PollState(opened=(0.0,) * open_polls))

    assert opened >= 0
    if opened:
        assert open_polls + opened <= polls
        assert leases + open_polls + opened <= max(take, 2 if take and not leases else 0)


def test_pool_at_rest_has_two_polls_even_if_it_may_take_one_lease() -> None:
    assert may_open(SentinelOrder(2, 1), 0, PollState()) == 2


def test_no_poll_is_opened_once_the_only_lease_is_held() -> None:
    assert may_open(SentinelOrder(2, 1), 1, PollState(opened=(0.0,))) == 0
    assert may_open(SentinelOrder(2, 1), 1, PollState()) == 0


def test_pool_that_may_take_no_lease_opens_no_poll() -> None:
    assert may_open(SentinelOrder(2, 0), 0, PollState()) == 0


def test_fan_out_opens_polls_up_to_the_order() -> None:
    assert may_open(SentinelOrder(10, 40), 1, PollState(opened=(0.0, 0.0))) == 8
    assert may_open(SentinelOrder(10, 5), 2, PollState(opened=(0.0, 0.0))) == 1


def test_polls_at_rest_are_staggered_and_a_fan_out_is_not() -> None:
    one = PollState(opened=(100.0,), last_opened=100.0, hold_seconds=60.0)

    assert stagger_seconds(SentinelOrder(2, 2), one, 110.0) == 20.0
    assert stagger_seconds(SentinelOrder(10, 40), one, 110.0) == 0.0
    assert stagger_seconds(SentinelOrder(2, 2), PollState(last_opened=100.0), 110.0) == 0.0


def test_answers_at_once_are_counted_until_one_comes_late_or_empty() -> None:
    state = PollState()
    counts = []
    for took, task in ((0.1, True), (0.1, True), (AT_ONCE_SECONDS, True), (0.1, True), (0.1, False)):
        state = with_answer(with_poll(state, 50.0), 50.0, 50.0 + took, task=task)
        counts.append(state.at_once)

    assert counts == [1, 2, 0, 1, 0]


def test_open_polls_are_known_by_the_time_of_their_opening() -> None:
    state = with_poll(with_poll(PollState(), 10.0), 20.0)

    assert (state.open, state.last_opened) == (2, 20.0)
    assert with_answer(state, 10.0, 30.0, task=False).opened == (20.0,)
