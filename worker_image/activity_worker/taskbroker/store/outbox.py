"""Activations whose next step is a topic's: leased from the store, written to the topic, then done with.

The lease keeps other brokers away while Kafka acknowledges, without a transaction that stays open for so long. A broker
that dies in between leaves the activation as it was: when the lease is over, it is written once more under the same id.
A retry of a task that is at most once never leaves the store, because its message could be written twice.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from activity_worker.taskbroker.lifecycle.inflight import Inflight
from activity_worker.taskbroker.lifecycle.upkeep import UpkeepStep
from activity_worker.taskbroker.store import statements
from activity_worker.taskbroker.store.broker_store import BATCH, BrokerStore
from activity_worker.taskbroker.store.tables import inflight_of


@dataclass(frozen=True, slots=True)
class LeasedActivation:
    """An activation that this broker may write to a topic, and its number in the store."""

    number: int
    inflight: Inflight


async def lease_for_topic(store: BrokerStore, step: UpkeepStep, seconds: float) -> Sequence[LeasedActivation]:
    """Return at most `BATCH` activations that a step writes to a topic; no other broker gets them for so long."""

    def lease(connection: Connection) -> Sequence[LeasedActivation]:
        now = store.clock()
        rows = connection.execute(statements.DUE_FOR_TOPIC[step], {"now": now, "batch": BATCH}).all()
        rows = sorted(rows, key=lambda row: row.number)
        if rows:
            leases = [{"this": row.number, "until": now + seconds} for row in rows]
            connection.execute(statements.LEASE, leases)
        return [LeasedActivation(row.number, inflight_of(row)) for row in rows]

    return await store.transactions.write(lease)


async def complete(store: BrokerStore, step: UpkeepStep, numbers: Collection[int]) -> None:
    """Mark activations complete whose message the topic has."""
    await store.transactions.write(lambda connection: connection.execute(statements.completed(step, numbers)))
