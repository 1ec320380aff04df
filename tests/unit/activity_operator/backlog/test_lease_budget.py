"""The part of the budget of leases that one pool may use."""

import pytest

from activity_operator.backlog.lease_budget import LeaseBudget, budget_message, pool_limit
from activity_operator.backlog.protocol import LeaseCounts, LeaseTotals

BUDGET = LeaseBudget(leases=100, size_bytes=1000)
ONE = LeaseCounts(held=1, size_bytes=10)


def test_pool_has_no_limit_up_to_half_of_the_budget() -> None:
    assert pool_limit(BUDGET, LeaseTotals(49, 499, 3), LeaseCounts(held=49)) is None


def test_pools_have_equal_shares_above_half_of_the_budget() -> None:
    assert pool_limit(BUDGET, LeaseTotals(50, 10, 4), ONE) == 25
    assert pool_limit(BUDGET, LeaseTotals(60, 10, 80), ONE) == 1


def test_pool_with_more_than_its_share_of_the_bytes_takes_no_lease() -> None:
    totals = LeaseTotals(10, 600, 2)

    assert pool_limit(BUDGET, totals, LeaseCounts(held=2, size_bytes=500)) == 0
    assert pool_limit(BUDGET, totals, ONE) == 50


@pytest.mark.parametrize("totals", [LeaseTotals(100, 10, 1), LeaseTotals(2, 1000, 1), LeaseTotals(300, 9000, 9)])
def test_budget_that_is_budget_message_allows_no_further_lease(totals: LeaseTotals) -> None:
    assert pool_limit(BUDGET, totals, ONE) == 0


def test_message_names_both_limits_and_their_chart_values() -> None:
    message = budget_message(LeaseBudget())

    assert "500 leases, heldLeases" in message
    assert "32 MiB, heldLeasesMiB" in message
