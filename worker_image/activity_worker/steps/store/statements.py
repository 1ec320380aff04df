"""The store's frequent writes, built once. On PostgreSQL each is one statement, and so one way to the server and back.

A revision and its line of history are written together: there in one statement, on SQLite in one transaction.
"""

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from sqlalchemy import (
    ARRAY,
    CTE,
    ColumnElement,
    Connection,
    Float,
    Row,
    String,
    Update,
    any_,
    bindparam,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import JSONB

from activity_worker.steps.store.rows import StoredInstance, history_row
from activity_worker.wire.taskstore import CHANNEL, HISTORY, INSTANCES, is_due

#: Columns that a revision changes; the data only sometimes.
_CHANGED = ("status", "next_run_time", "complete", "success", "paused", "request", "revision", "updated")
_NOTED = ("instance_id", "revision", "at", "runner", "status", "next_run_time", "data")


class Statements(Protocol):
    """What differs between the databases; each runs on a connection that commits afterwards."""

    def create(self, connection: Connection, row: Mapping[str, Any]) -> bool:
        """Write a new instance with its first revision and announce it; False when there is one of its id."""
        ...

    def keep(self, connection: Connection, held: StoredInstance, row: Mapping[str, Any], *, data: bool) -> bool:
        """Write the next revision if nothing at all has changed since `held`; `data` says that the data did."""
        ...


class SqliteStatements:
    """Several statements of a transaction."""

    def create(self, connection: Connection, row: Mapping[str, Any]) -> bool:
        """See Statements."""
        made = connection.execute(sqlite.insert(INSTANCES).on_conflict_do_nothing(), dict(row))
        if made.rowcount == 0:
            return False
        connection.execute(insert(HISTORY), history_row(row, row["data"]))
        return True

    def keep(self, connection: Connection, held: StoredInstance, row: Mapping[str, Any], *, data: bool) -> bool:
        """See Statements."""
        kept = connection.execute(_KEEP[data], _kept(held, row, data=data))
        if kept.rowcount == 0:
            return False
        connection.execute(insert(HISTORY), history_row(row, row["data"] if data else None))
        return True


class PostgresStatements:
    """One statement of PostgreSQL each."""

    def create(self, connection: Connection, row: Mapping[str, Any]) -> bool:
        """See Statements."""
        return connection.execute(_CREATE, {f"new_{name}": value for name, value in row.items()}).first() is not None

    def keep(self, connection: Connection, held: StoredInstance, row: Mapping[str, Any], *, data: bool) -> bool:
        """See Statements."""
        return connection.execute(_KEEP_AND_NOTE[data], _kept(held, row, data=data)).rowcount == 1

    def take(
        self,
        connection: Connection,
        runner: str,
        now: float,
        until: float,
        versions: Collection[str],
        only: str | None,
    ) -> Row[Any] | None:
        """Begin the call of the instance that has been due longest, or of the one named; return its row.

        `was_due` is since when it had been due; None when none is. Where more is to be decided than that (its call was
        lost, or a person wishes something) nothing is written, and the row has nothing else.
        """
        given = {"now": now, "until": until, "new_runner": runner, "versions": list(versions)}
        if only is not None:
            return connection.execute(_TAKE_ONE, {**given, "only": only}).one_or_none()
        return connection.execute(_TAKE, given).one_or_none()


def _kept(held: StoredInstance, row: Mapping[str, Any], *, data: bool) -> dict[str, Any]:
    changed = {f"new_{name}": row[name] for name in _CHANGED}
    if data:
        changed["new_data"] = row["data"]
    return {
        **changed,
        "held_id": held.instance.id,
        "held_revision": held.revision,
        "held_runner": held.runner,
        "held_request": "cancel" if held.cancel else "",
        "held_paused": held.instance.paused,
    }


def _keep(*, data: bool) -> Update:
    held = [
        INSTANCES.c[name] == bindparam(f"held_{name}") for name in ("id", "revision", "runner", "request", "paused")
    ]
    changed = (*_CHANGED, "data") if data else _CHANGED
    return update(INSTANCES).where(*held).values({name: bindparam(f"new_{name}") for name in changed})


def _noted(kept: CTE, data: ColumnElement[Any] | None) -> Any:
    """Return the statement that adds to the history what another one has just written."""
    columns = [kept.c.id, kept.c.revision, kept.c.updated, kept.c.runner, kept.c.status, kept.c.next_run_time]
    if data is None:
        return insert(HISTORY).from_select(_NOTED[:-1], select(*columns))
    return insert(HISTORY).from_select(_NOTED, select(*columns, data))


def _keep_and_note(*, data: bool) -> Any:
    kept = _keep(data=data).returning(INSTANCES).cte("kept")
    return _noted(kept, kept.c.data if data else None)


def _create() -> Any:
    row: dict[str, Any] = {column.name: bindparam(f"new_{column.name}") for column in INSTANCES.c}
    made = postgresql.insert(INSTANCES).values(row).on_conflict_do_nothing().returning(INSTANCES).cte("made")
    noted = _noted(made, made.c.data).returning(HISTORY.c.instance_id).cte("noted")
    return select(func.pg_notify(CHANNEL, made.c.task_name)).select_from(made).add_cte(noted)


def _take(*only: ColumnElement[bool]) -> Any:
    now: Any = bindparam("now", type_=Float)
    ours = INSTANCES.c.definition_id == any_(bindparam("versions", type_=ARRAY(String)))
    longest = select(INSTANCES.c.id, INSTANCES.c.next_run_time).where(is_due(now), ours, *only)
    longest = longest.order_by(INSTANCES.c.next_run_time, INSTANCES.c.created).limit(1)
    due = longest.with_for_update(skip_locked=True).cte("due")
    fresh = (INSTANCES.c.status["running"].as_boolean().is_(False), INSTANCES.c.request == "")
    begun = {
        "status": INSTANCES.c.status.op("||")(literal({"running": True}, JSONB)),
        "next_run_time": bindparam("until", type_=Float),
        "revision": INSTANCES.c.revision + 1,
        "runner": bindparam("new_runner"),
        "updated": now,
    }
    kept = update(INSTANCES).where(INSTANCES.c.id == due.c.id, *fresh).values(begun).returning(INSTANCES).cte("kept")
    noted = _noted(kept, None).returning(HISTORY.c.instance_id).cte("noted")
    was_due = due.c.next_run_time.label("was_due")
    return select(was_due, *kept.c).select_from(due.outerjoin(kept, kept.c.id == due.c.id)).add_cte(noted)


_KEEP = {data: _keep(data=data) for data in (False, True)}
_KEEP_AND_NOTE = {data: _keep_and_note(data=data) for data in (False, True)}
_CREATE = _create()
_TAKE = _take()
_TAKE_ONE = _take(INSTANCES.c.id == bindparam("only", type_=String))
