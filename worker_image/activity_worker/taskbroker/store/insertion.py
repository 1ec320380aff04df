"""Adding activations to the table, each id once."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, delete
from sqlalchemy.dialects import postgresql, sqlite

from activity_worker.taskbroker.store import statements
from activity_worker.taskbroker.store.tables import ACTIVATIONS

#: The most activations in one INSERT: databases allow some 32,000 values in a statement.
_INSERTED_AT_ONCE: Final = 1000


def insert_new(connection: Connection, rows: Sequence[dict[str, Any]], now: float) -> int:
    """Insert rows, and return how many are new.

    One whose id is there is left as it is, and one whose id was there a moment before `now` is not inserted.
    """
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    added = 0
    for at in range(0, len(rows), _INSERTED_AT_ONCE):
        some = list(rows[at : at + _INSERTED_AT_ONCE])
        once = dialect.insert(ACTIVATIONS).values(some).on_conflict_do_nothing(index_elements=["id"])
        new = connection.execute(once.returning(ACTIVATIONS.c.number, ACTIVATIONS.c.id)).all()
        # Looked for after the insertion, which waits for a removal of the same id by another broker.
        asked = {"ids": [row.id for row in new], "now": now}
        finished = set(connection.execute(statements.FINISHED, asked).scalars())
        if again := [row.number for row in new if row.id in finished]:
            connection.execute(delete(ACTIVATIONS).where(ACTIVATIONS.c.number.in_(again)))
        added += len(new) - len(again)
    return added
