"""How a quota of counts is divided: by need, never above it, and nothing is left while a list wants more."""

from collections.abc import Sequence

import pytest

from activity_operator.backlog.task_list_pace import SLOW_SECONDS, ListNeed, count_intervals
from activity_operator.core.decision import CountPace

FAST, STEADY, SLOW = (ListNeed(pace) for pace in CountPace)
ACTIVE = ListNeed(CountPace.STEADY, active=True)


def spent(needs: Sequence[ListNeed], rate: float) -> float:
    """Return the counts a second that these lists get."""
    intervals = count_intervals(needs, rate, 0.35)
    return sum(1.0 / intervals[need] for need in needs)


def test_a_single_list_is_counted_at_the_fastest_interval() -> None:
    assert count_intervals([STEADY], 5.0, 0.35) == {STEADY: 0.35}
    assert count_intervals([FAST], 5.0, 0.35) == {FAST: 0.35}


def test_lists_with_equal_needs_share_the_rate_equally() -> None:
    assert count_intervals([STEADY] * 200, 5.0, 0.35)[STEADY] == pytest.approx(40.0)


def test_slow_lists_leave_their_share_to_the_others() -> None:
    intervals = count_intervals([SLOW] * 15 + [STEADY], 5.0, 0.35)

    assert intervals == {SLOW: SLOW_SECONDS, STEADY: 0.35}


def test_an_active_list_is_counted_four_times_as_often() -> None:
    intervals = count_intervals([ACTIVE] * 20 + [STEADY] * 100, 5.0, 0.35)

    assert intervals[STEADY] == pytest.approx(4 * intervals[ACTIVE])


def test_no_list_starves_beside_many_fast_ones() -> None:
    intervals = count_intervals([FAST] * 100 + [STEADY, SLOW], 5.0, 0.35)

    assert intervals[STEADY] == pytest.approx(2 * intervals[FAST])
    assert intervals[SLOW] == pytest.approx(4 * intervals[FAST])


@pytest.mark.parametrize("numbers", [(1, 1, 1), (0, 200, 0), (3, 40, 100), (150, 0, 0), (0, 0, 400), (1, 1000, 1000)])
def test_the_rate_is_never_exceeded_and_used_up_while_lists_want_more(numbers: tuple[int, int, int]) -> None:
    needs = [need for need, number in zip((FAST, STEADY, SLOW), numbers, strict=True) for _ in range(number)]
    wanted = sum(1 / SLOW_SECONDS if need is SLOW else 1 / 0.35 for need in needs)

    assert spent(needs, 5.0) == pytest.approx(min(5.0, wanted))


def test_no_lists_need_no_interval() -> None:
    assert count_intervals([], 5.0, 0.35) == {}
