"""What failing TokenReviews cost: status writes and Events of pools with a worker each."""

import asyncio

import pytest

from activity_operator import wiring
from activity_operator.api.conditions import Reason
from activity_operator.cluster.reconciler import Reconciler
from activity_operator.reports.authentication import ReviewUnavailableError
from tests.unit.activity_operator.reports.many_pools import Operator, bearer
from tests.unit.activity_operator.virtual_time import elapsed


@pytest.fixture(autouse=True)
def virtual_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the budget of status writes the loop's clock."""
    monkeypatch.setattr(wiring, "clock", elapsed)


async def test_one_failed_review_writes_no_status_and_no_event() -> None:
    async with Operator(60).running() as operator:
        operator.api.down = True
        with pytest.raises(ReviewUnavailableError):
            await operator.components.reports.authenticator.identify(bearer("p-pool-0", "rotated"))
        operator.api.down = False
        await asyncio.sleep(15.0)

        assert (len(operator.api.statuses), len(operator.api.events)) == (0, 0)


async def test_pools_at_rest_are_seldom_reconciled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of a wait may be smaller than the clock's resolution: it must not be reconciled away."""
    reconciled: list[object] = []
    reconcile = Reconciler.reconcile

    async def count(self: Reconciler, key: tuple[str, str]) -> None:
        reconciled.append(key)
        if len(reconciled) > 10_000:
            await asyncio.sleep(1.0)  # else the virtual time would stand still for ever
        await reconcile(self, key)

    monkeypatch.setattr(Reconciler, "reconcile", count)
    async with Operator(60).running():
        await asyncio.sleep(20.0)
        assert len(reconciled) < 60 * 20


async def test_failing_reviews_concern_only_pools_whose_workers_are_unheard() -> None:
    """Accepted tokens stay believed, so only workers with a new token are unheard."""
    async with Operator(40).running() as operator:
        operator.silent = {"pool-1", "pool-2", "pool-3"}
        operator.api.down = True
        await asyncio.sleep(50.0)
        assert operator.unauthenticated() == operator.silent
        assert {event["regarding"]["name"] for event in operator.api.events} == operator.silent
        operator.api.down = False
        await asyncio.sleep(20.0)

        assert operator.unauthenticated() == set()
        assert {key[1] for _, key in operator.api.statuses} == operator.silent


async def test_lasting_outage_is_one_event_of_each_pool() -> None:
    async with Operator(40).running() as operator:
        operator.silent = set(operator.names)
        operator.api.down = True
        await asyncio.sleep(60.0)
        events = [event for event in operator.api.events if event["reason"] == Reason.REPORTS_UNAUTHENTICATED]

        assert operator.unauthenticated() == operator.silent
        assert sorted(event["regarding"]["name"] for event in events) == sorted(operator.names)
