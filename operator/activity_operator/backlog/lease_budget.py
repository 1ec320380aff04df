"""PURE: how many leases a pool may hold, so that all pools together stay within the operator's memory and etcd."""

from dataclasses import dataclass

from activity_operator.backlog.protocol import LeaseCounts, LeaseTotals

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LeaseBudget:
    """The most leases, and bytes of payloads and tokens, for which the operator still opens polls.

    A poll that is open when the budget is used up may still bring a task, and its lease is kept. A pool without a lease
    keeps its resting polls, so that every pool can start.
    """

    leases: int = 500
    size_bytes: int = 32 * MEBIBYTE


def pool_limit(budget: LeaseBudget, totals: LeaseTotals, pool: LeaseCounts, burst_polls: int = 0) -> int | None:
    """Return the most leases and open polls that the budget allows the pool now, None if it sets no limit.

    Up to half of the budget pools hold what they need. Above it each pool with a lease has an equal share. Once the
    budget is used up, no pool may take another lease. `burst_polls` are the open polls of all pools beyond those at
    rest: each may bring a lease, so they count for the half. Polls alone never use up the budget, because most of them
    may wait for a minute and bring nothing.
    """
    if totals.leases >= budget.leases or totals.size_bytes >= budget.size_bytes:
        return 0
    if 2 * (totals.leases + burst_polls) < budget.leases and 2 * totals.size_bytes < budget.size_bytes:
        return None
    pools = max(totals.pools, 1)
    if pool.size_bytes * pools >= budget.size_bytes:
        return 0
    return max(budget.leases // pools, 1)


def budget_message(budget: LeaseBudget) -> str:
    """Return the sentence for a pool that gets no further lease because of the budget."""
    return (
        f"the operator holds leases up to its limit for all pools ({budget.leases} leases, heldLeases, or "
        f"{budget.size_bytes / MEBIBYTE:g} MiB, heldLeasesMiB); further tasks wait at the service"
    )
