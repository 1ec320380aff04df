"""The dead letters of a broker's store: to look at, to requeue, to purge."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Select, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from activity_worker.database.engine import reading_engine
from activity_worker.taskbroker.lifecycle.upkeep import DeadLetter, requeued
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.tables import ACTIVATIONS, DEAD_LETTERS, inflight_row, letter_of

#: The most dead letters that are deleted in one transaction.
PURGED_AT_ONCE: Final = 500


class UnknownDeadLetterError(LookupError):
    """There is no dead letter of this number."""


class TaskInFlightError(Exception):
    """A dead letter cannot be requeued, because a task of its id is in flight."""


@dataclass(frozen=True, slots=True)
class StoredDeadLetter:
    """A dead letter and its number, by which it is named: the id of its task may come again."""

    number: int
    letter: DeadLetter


async def list_dead_letters(
    store: BrokerStore, *, namespace: str | None = None, limit: int = 100
) -> Sequence[StoredDeadLetter]:
    """Return the newest dead letters, of a namespace or of all."""
    chosen = select(DEAD_LETTERS).order_by(DEAD_LETTERS.c.number.desc()).limit(limit)
    if namespace is not None:
        chosen = chosen.where(DEAD_LETTERS.c.namespace == namespace)
    async with reading_engine(store.engine).connect() as connection:
        rows = (await connection.execute(chosen)).all()
    return [StoredDeadLetter(row.number, letter_of(row)) for row in rows]


async def get_dead_letter(store: BrokerStore, number: int) -> DeadLetter:
    """Return a dead letter. Raises UnknownDeadLetterError."""
    async with reading_engine(store.engine).connect() as connection:
        row = (await connection.execute(_numbered(number))).one_or_none()
    if row is None:
        raise _unknown(number)
    return letter_of(row)


async def requeue_dead_letter(store: BrokerStore, number: int) -> str:
    """Make an activation of a dead letter, without attempts and received now, and return its id.

    The letter is gone with that. Raises UnknownDeadLetterError and TaskInFlightError.
    """

    def requeue(connection: Connection) -> str:
        row = connection.execute(_numbered(number).with_for_update()).one_or_none()
        if row is None:
            raise _unknown(number)
        again = requeued(letter_of(row), store.clock())
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        once = dialect.insert(ACTIVATIONS).values(inflight_row(again)).on_conflict_do_nothing(index_elements=["id"])
        if connection.execute(once.returning(ACTIVATIONS.c.number)).one_or_none() is None:
            raise TaskInFlightError(f"task {again.id} is in flight: wait until it is over, and requeue the letter then")
        connection.execute(delete(DEAD_LETTERS).where(DEAD_LETTERS.c.number == number))
        return again.id

    return await store.transactions.write(requeue)


async def purge_dead_letters(
    store: BrokerStore, *, before: float | None = None, numbers: Collection[int] | None = None
) -> int:
    """Delete dead letters that became so before a time, or those of these numbers; return how many."""
    chosen = select(DEAD_LETTERS.c.number).limit(PURGED_AT_ONCE)
    if before is not None:
        chosen = chosen.where(DEAD_LETTERS.c.dead_at < before)
    if numbers is not None:
        chosen = chosen.where(DEAD_LETTERS.c.number.in_(numbers))
    purged = 0
    while True:

        def purge(connection: Connection) -> int:
            return connection.execute(delete(DEAD_LETTERS).where(DEAD_LETTERS.c.number.in_(chosen))).rowcount

        last = await store.transactions.write(purge)
        purged += last
        if last < PURGED_AT_ONCE:
            return purged


def _numbered(number: int) -> Select[Any]:
    return select(DEAD_LETTERS).where(DEAD_LETTERS.c.number == number)


def _unknown(number: int) -> UnknownDeadLetterError:
    return UnknownDeadLetterError(f"there is no dead letter {number}: `activity-worker dead-letters list` shows them")
