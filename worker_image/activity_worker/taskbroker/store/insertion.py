"""Adding activations to the table, each id once."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

from activity_worker.taskbroker.store.tables import ACTIVATIONS

#: The most activations in one INSERT: databases allow some 32,000 values in a statement.
_INSERTED_AT_ONCE: Final = 1000


def insert_new(connection: Connection, rows: Sequence[dict[str, Any]]) -> int:
    """Insert rows, and return how many are new. One whose id is there is left as it is."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    added = 0
    for at in range(0, len(rows), _INSERTED_AT_ONCE):
        some = list(rows[at : at + _INSERTED_AT_ONCE])
        once = dialect.insert(ACTIVATIONS).values(some).on_conflict_do_nothing(index_elements=["id"])
        added += len(connection.execute(once.returning(ACTIVATIONS.c.number)).all())
    return added
