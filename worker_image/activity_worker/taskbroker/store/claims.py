"""Claims of a broker that pushes: it takes pending activations, and says of each whether a worker has accepted it.

A claim that the broker neither delivers nor releases expires: upkeep treats it like a passed processing deadline.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Update

from activity_worker.taskbroker.store import statements
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.statements import TaskFilter


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim: the activation's number in the store, its id, the attempt that the claim is, and the message."""

    number: int
    id: str
    attempt: int
    deadline_seconds: int
    data: bytes = field(repr=False)


async def claim_tasks(store: BrokerStore, wanted: TaskFilter, limit: int, seconds: float) -> Sequence[Claim]:
    """Claim for `seconds` up to `limit` activations, those that have been due longest, in this order.

    The attempt counts with the claim.
    """

    def claimed(connection: Connection) -> Sequence[Any]:
        now = store.clock()
        values = {"now": now, "claimed_until": now + seconds, "batch": limit, **wanted.values}
        return connection.execute(statements.CLAIM[wanted.kind], values).all()

    rows = await store.transactions.single(claimed)
    # The order of what an UPDATE returns is nowhere promised.
    return [
        Claim(row.number, row.id, row.attempts, row.deadline_seconds, row.data)
        for row in sorted(rows, key=lambda row: (row.due_at, row.number))
    ]


async def deliver_claims(store: BrokerStore, claims: Sequence[Claim]) -> int:
    """Record that workers have accepted the tasks, whose processing deadlines begin; return how many claims held.

    A claim that has expired, or whose task is reported already, is left as it is.
    """
    return await _ended(store, claims, statements.DELIVER, {"now": store.clock(), "grace": store.policy.grace_seconds})


async def release_claims(store: BrokerStore, claims: Sequence[Claim]) -> int:
    """Return tasks to pending that no worker has accepted, without the attempt; return how many claims held."""
    return await _ended(store, claims, statements.RELEASE, {})


async def _ended(store: BrokerStore, claims: Sequence[Claim], statement: Update, values: dict[str, Any]) -> int:
    def ended(connection: Connection) -> int:
        # In one order everywhere, so that two brokers never wait for each other.
        return sum(
            connection.execute(statement, {"this": one.number, "attempt": one.attempt, **values}).rowcount
            for one in sorted(claims, key=lambda one: one.id)
        )

    alone = len(claims) == 1
    return await (store.transactions.single(ended) if alone else store.transactions.write(ended))
