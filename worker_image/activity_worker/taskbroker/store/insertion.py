"""Adding activations to the table, each id once."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, delete
from sqlalchemy.dialects import postgresql, sqlite

from activity_worker.taskbroker.store import statements
from activity_worker.taskbroker.store.tables import ACTIVATIONS

#: Made once for each database. The rows are parameters: a statement with the rows in it would be compiled each time.
_INSERT: Final[Mapping[str, Any]] = {
    name: dialect.insert(ACTIVATIONS)
    .on_conflict_do_nothing(index_elements=["id"])
    .returning(ACTIVATIONS.c.number, ACTIVATIONS.c.id)
    for name, dialect in (("postgresql", postgresql), ("sqlite", sqlite))
}


def insert_new(connection: Connection, rows: Sequence[dict[str, Any]], now: float) -> int:
    """Insert rows, and return how many are new.

    One whose id is there is left as it is, and one whose id was there a moment before `now` is not inserted.
    """
    if not rows:
        return 0
    new = connection.execute(_INSERT[connection.dialect.name], list(rows)).all()
    # Looked for after the insertion, which waits for a removal of the same id by another broker.
    asked = {"ids": [row.id for row in new], "now": now}
    finished = set(connection.execute(statements.FINISHED, asked).scalars())
    if again := [row.number for row in new if row.id in finished]:
        connection.execute(delete(ACTIVATIONS).where(ACTIVATIONS.c.number.in_(again)))
    return len(new) - len(again)
