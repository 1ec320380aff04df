"""A budget of calls: a full bucket at the beginning, and a refill that never exceeds it."""

from activity_operator.backlog.call_budget import CallBudget


def test_bucket_is_full_at_the_beginning_and_refills_at_its_rate() -> None:
    budget = CallBudget(burst=3.0, rate=2.0)
    budget.refill(10.0)
    budget.calls -= 3
    assert not budget.full

    budget.refill(10.5)

    assert budget.calls == 1.0
    assert budget.wait_seconds() == 0.0


def test_refill_never_exceeds_the_bucket() -> None:
    budget = CallBudget(burst=3.0, rate=2.0)
    budget.refill(0.0)
    budget.calls -= 1
    budget.refill(1000.0)

    assert budget.full
    assert budget.calls == 3.0


def test_empty_budget_names_the_wait_for_one_call() -> None:
    budget = CallBudget(burst=3.0, rate=2.0)
    budget.refill(0.0)
    budget.calls = 0.5

    assert budget.wait_seconds() == 0.25
