"""The task store: definitions and instances in SQLite or PostgreSQL, with one contract.

Every change of an instance makes a revision, and a write names the revision that it changes. So the store refuses the
write of a runner whose lease was taken over (`InstanceLeaseLostError`), whatever the runner's clock says.
"""

import functools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncEngine

from activity_worker.database.engine import Transactions, connect, reading_engine, transactions_of
from activity_worker.steps.model import transitions
from activity_worker.steps.model.definition import Definition
from activity_worker.steps.model.definition_parser import DefinitionError, parse
from activity_worker.steps.model.instance import Instance
from activity_worker.steps.store.rows import (
    ClaimedInstance,
    Revision,
    StoredInstance,
    history_row,
    new_row,
    pending_request,
    revision_columns,
    revision_of,
    stored_instance,
)
from activity_worker.steps.store.statements import PostgresStatements, SqliteStatements
from activity_worker.wire.taskstore import CHANNEL, DEFINITIONS, HISTORY, INSTANCES, is_due

__all__ = [
    "ClaimedInstance",
    "InstanceLeaseLostError",
    "Revision",
    "StoredInstance",
    "TaskStore",
    "Transition",
    "UnknownInstanceError",
]

log = logging.getLogger(__name__)

#: Most instances that one transaction deletes.
PRUNED_AT_ONCE = 500


class InstanceLeaseLostError(Exception):
    """Another runner has taken the instance over, or a person has changed it: the write is refused."""


class UnknownInstanceError(LookupError):
    """The store has no instance with this id."""


Transition = Callable[[Definition, StoredInstance], Instance]


class TaskStore:
    """A task store. `open` it, and `close` it at the end."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self._reader = reading_engine(engine)
        self._transactions = transactions_of(engine)
        self._postgres = PostgresStatements() if engine.dialect.name == "postgresql" else None
        self._sqlite = SqliteStatements()
        self._definitions: dict[str, Definition] = {}

    @classmethod
    async def open(cls, url: str, *, migrate: bool = True) -> Self:
        """Return the store at a URL; `migrate` updates its tables. Raises StoreUrlError and the database's errors."""
        return cls(await connect(url, _upgrade if migrate else None))

    async def close(self) -> None:
        """Close the connections."""
        await self._transactions.close()
        await self.engine.dispose()

    async def sync(self, definition: Definition, now: float) -> None:
        """Store a version of a task unless the store has it."""
        if definition.id in self._definitions:
            return
        row = {"id": definition.id, "name": definition.name, "source": dict(definition.source), "created": now}
        once = (sqlite if self._postgres is None else postgresql).insert(DEFINITIONS).on_conflict_do_nothing()
        await self._transactions.single(lambda connection: connection.execute(once, row))
        self._definitions[definition.id] = definition

    async def definition(self, definition_id: str) -> Definition:
        """Return a version of a task. Raises LookupError if the store has no version with this id."""
        if (known := self._definitions.get(definition_id)) is not None:
            return known
        async with self._reader.connect() as connection:
            return await connection.run_sync(self._definition, definition_id)

    async def versions(self, tasks: Collection[str]) -> Sequence[Definition]:
        """Return every version of these tasks that this program can read.

        A newer program stored the others; its runners run their instances.
        """
        chosen = select(DEFINITIONS.c.id).where(DEFINITIONS.c.name.in_(tuple(tasks)))
        found = []
        async with self._reader.connect() as connection:
            for one in (await connection.execute(chosen)).scalars().all():
                try:
                    found.append(await connection.run_sync(self._definition, one))
                except DefinitionError as error:
                    _log_unreadable(one, str(error))
        return found

    async def create(self, instance: Instance, now: float) -> bool:
        """Store a new instance. Returns False if the store has one with this id, which does not change."""
        row = new_row(instance, now)
        statements = self._postgres or self._sqlite
        return await self._transactions.single(lambda connection: statements.create(connection, row))

    async def claim(
        self,
        runner: str,
        clock: Callable[[], float],
        versions: Collection[str],
        lease_seconds: float,
        *,
        only: str | None = None,
    ) -> ClaimedInstance | None:
        """Claim the instance of these `versions` that has been due longest; None if none is due.

        `only` is the id of the one instance to claim. The instance is stored as running until the lease ends, or as
        complete. The clock is read within the transaction: the wait for the database takes nothing from the lease.
        """
        if (single := self._postgres) is not None:

            def took(connection: Connection) -> Row[Any] | None:
                now = clock()
                return single.take(connection, runner, now, now + lease_seconds, versions, only)

            row = await self._transactions.single(took)
            if row is None:
                return None
            if row.id is not None:
                return _claimed_by_statement(row)
        return await self._transactions.write(
            lambda it: self._claim(it, runner, clock(), versions, lease_seconds, only)
        )

    async def record(self, held: StoredInstance, now: float, transition: Transition) -> StoredInstance:
        """Store the next revision of a claimed instance. Raises InstanceLeaseLostError if its revision has changed.

        `transition` is called with `held`, and again with the stored instance if a person has changed it since.
        """
        definition = await self.definition(held.instance.definition_id)
        statements = self._postgres or self._sqlite

        def unchanged(connection: Connection) -> StoredInstance | None:
            after = transition(definition, held)
            row = _next_row(held, after, held.runner, now)
            kept = statements.keep(connection, held, row, data=after.data != held.instance.data)
            return _became(held, after, row) if kept else None

        def changed(connection: Connection) -> StoredInstance:
            row = _locked(connection, held.instance.id)
            if row.revision != held.revision or row.runner != held.runner:
                raise InstanceLeaseLostError(
                    f"instance {held.instance.id} is at revision {row.revision}, not {held.revision}"
                )
            return self._transition(connection, row, held.runner, now, transition)

        if (kept := await self._transactions.single(unchanged)) is not None:
            return kept
        return await self._transactions.write(changed)

    async def renew(self, held: StoredInstance, until: float) -> None:
        """Move the end of a lease. Raises InstanceLeaseLostError if the instance's revision has changed."""
        mine = (INSTANCES.c.id == held.instance.id, INSTANCES.c.revision == held.revision)
        moved = update(INSTANCES).where(*mine).values(next_run_time=until)
        if await self._transactions.single(lambda connection: connection.execute(moved).rowcount) == 0:
            raise InstanceLeaseLostError(f"instance {held.instance.id} is not at revision {held.revision} any more")

    async def change(
        self, instance_id: str, now: float, transition: Transition, *, cancel: bool | None = None
    ) -> StoredInstance:
        """Change an instance as a person asks. A running call goes on, and its runner's next write sees the change.

        `cancel` sets or clears the request to cancel; None keeps it. Raises UnknownInstanceError.
        """

        def changed(connection: Connection) -> StoredInstance:
            row = _locked(connection, instance_id)
            stored = self._transition(connection, row, row.runner, now, transition, cancel=cancel, fence=False)
            _announce(connection, stored.instance.task_name)
            return stored

        return await self._transactions.write(changed)

    async def get(self, instance_id: str) -> StoredInstance:
        """Return an instance. Raises UnknownInstanceError."""
        async with self._reader.connect() as connection:
            row = (await connection.execute(select(INSTANCES).where(INSTANCES.c.id == instance_id))).one_or_none()
        if row is None:
            raise UnknownInstanceError(f"there is no task instance {instance_id!r}")
        return stored_instance(row)

    async def listed(self, tasks: Collection[str] = (), *, limit: int = 100) -> Sequence[StoredInstance]:
        """Return the newest instances of these tasks, or of all tasks if none is named."""
        chosen = select(INSTANCES).order_by(INSTANCES.c.created.desc(), INSTANCES.c.id).limit(limit)
        if tasks:
            chosen = chosen.where(INSTANCES.c.task_name.in_(tuple(tasks)))
        return [stored_instance(row) for row in await self._read(chosen)]

    async def history(self, instance_id: str) -> Sequence[Revision]:
        """Return every revision of an instance, oldest first."""
        chosen = (
            select(HISTORY, INSTANCES.c.definition_id)
            .join(INSTANCES, INSTANCES.c.id == HISTORY.c.instance_id)
            .where(HISTORY.c.instance_id == instance_id)
            .order_by(HISTORY.c.revision)
        )
        return [revision_of(row, await self.definition(row.definition_id)) for row in await self._read(chosen)]

    async def created_data(self, instance_id: str) -> Mapping[str, Any]:
        """Return the data that an instance was created with."""
        chosen = select(HISTORY.c.data).where(HISTORY.c.instance_id == instance_id, HISTORY.c.revision == 1)
        return dict((await self._read(chosen))[0].data)

    async def count_by_version(self, versions: Collection[str]) -> Mapping[str, int]:
        """Return how many instances of these versions are not complete; versions without any are left out."""
        mine = (INSTANCES.c.complete.is_(False), INSTANCES.c.definition_id.in_(tuple(versions)))
        counted = (
            select(INSTANCES.c.definition_id, func.count().label("number"))
            .where(*mine)
            .group_by(INSTANCES.c.definition_id)
        )
        return {row.definition_id: row.number for row in await self._read(counted)}

    async def next_due(self, versions: Collection[str]) -> float | None:
        """Return when the next instance of these versions is due (Unix seconds), None if none will be."""
        chosen = (
            select(INSTANCES.c.next_run_time)
            .where(is_due(float("inf")), INSTANCES.c.definition_id.in_(tuple(versions)))
            .order_by(INSTANCES.c.next_run_time)
            .limit(1)
        )
        rows = await self._read(chosen)
        return rows[0][0] if rows else None

    async def prune(self, before: float, *, keep_failed: bool = False) -> int:
        """Delete instances that were complete before a time, with their whole history; return how many.

        Each transaction deletes a few, so that no writer waits long. An instance that is being changed stays.
        """
        return await _pruned(self._transactions, before, keep_failed=keep_failed)

    async def _read(self, chosen: Select[Any]) -> Sequence[Row[Any]]:
        async with self._reader.connect() as connection:
            rows: Sequence[Row[Any]] = (await connection.execute(chosen)).all()
            return rows

    def _claim(
        self,
        connection: Connection,
        runner: str,
        now: float,
        versions: Collection[str],
        lease_seconds: float,
        only: str | None,
    ) -> ClaimedInstance | None:
        row = connection.execute(_longest_due(now, versions, only)).one_or_none()
        if row is None:
            return None

        def taken(definition: Definition, stored: StoredInstance) -> Instance:
            return transitions.taken(definition, stored.instance, now, lease_seconds, canceled=stored.cancel)

        return ClaimedInstance(stored_instance(row).instance, self._transition(connection, row, runner, now, taken))

    def _transition(
        self,
        connection: Connection,
        row: Row[Any],
        runner: str,
        now: float,
        transition: Transition,
        *,
        cancel: bool | None = None,
        fence: bool = True,
    ) -> StoredInstance:
        """Write the next revision of a locked row. Without `fence` the runner of a running call keeps its lease."""
        before = stored_instance(row)
        if cancel is not None:
            before = replace(before, cancel=cancel)
        after = transition(self._definition(connection, before.instance.definition_id), before)
        this = update(INSTANCES).where(INSTANCES.c.id == after.id)
        if not fence and before.instance.status.running:
            # Only the runner moves the end of its lease, which it may have renewed meanwhile.
            request = pending_request(before, after)
            connection.execute(this.values(request=request, paused=after.paused, updated=now))
            return replace(before, instance=after, cancel=request == "cancel", updated=now)
        changed = _next_row(before, after, runner, now)
        connection.execute(this.values(changed))
        data = changed["data"] if after.data != before.instance.data else None
        connection.execute(insert(HISTORY), history_row(changed, data))
        return _became(before, after, changed)

    def _definition(self, connection: Connection, definition_id: str) -> Definition:
        if definition_id not in self._definitions:
            self._definitions[definition_id] = _stored_definition(connection, definition_id)
        return self._definitions[definition_id]


def _upgrade(connection: Connection) -> None:
    # A handler's process needs no migrations: importing them here saves it 12 MB and 0.3 s.
    from activity_worker.steps.store.migrations import upgrade  # noqa: PLC0415

    upgrade(connection)


def _stored_definition(connection: Connection, definition_id: str) -> Definition:
    chosen = select(DEFINITIONS.c.source).where(DEFINITIONS.c.id == definition_id)
    source = connection.execute(chosen).scalar_one_or_none()
    if source is None:
        raise LookupError(f"the store has no task version {definition_id}")
    return parse(source)


def _next_row(before: StoredInstance, after: Instance, runner: str, now: float) -> dict[str, Any]:
    revision = {"revision": before.revision + 1, "runner": runner, "updated": now}
    return {"id": after.id, "request": pending_request(before, after), **revision_columns(after), **revision}


def _locked(connection: Connection, instance_id: str) -> Row[Any]:
    chosen = select(INSTANCES).where(INSTANCES.c.id == instance_id).with_for_update()
    row = connection.execute(chosen).one_or_none()
    if row is None:
        raise UnknownInstanceError(f"there is no task instance {instance_id!r}")
    return row


def _announce(connection: Connection, task: str) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_notify(CHANNEL, task)))


@functools.cache
def _log_unreadable(version: str, problem: str) -> None:
    """Log once that a version is left to newer programs."""
    log.warning("version %s is left to other runners: %s", version, problem)


def _longest_due(now: float, versions: Collection[str], only: str | None) -> Select[Any]:
    """Return the statement that locks the instance that has been due longest, of `versions`, or the one named."""
    chosen = select(INSTANCES).where(is_due(now), INSTANCES.c.definition_id.in_(tuple(versions)))
    if only is not None:
        chosen = chosen.where(INSTANCES.c.id == only)
    first = chosen.order_by(INSTANCES.c.next_run_time, INSTANCES.c.created).limit(1)
    return first.with_for_update(skip_locked=True)


def _claimed_by_statement(row: Row[Any]) -> ClaimedInstance:
    """Return what `PostgresStatements.take` claimed; before it, the instance had no running call."""
    held = stored_instance(row)
    before = replace(held.instance, status=replace(held.instance.status, running=False), next_run_time=row.was_due)
    return ClaimedInstance(before, held)


async def _pruned(transactions: Transactions, before: float, *, keep_failed: bool) -> int:
    old: tuple[ColumnElement[bool], ...] = (INSTANCES.c.complete.is_(True), INSTANCES.c.updated < before)
    if keep_failed:
        old = (*old, INSTANCES.c.success.is_(True))
    count = 0
    last: str | None = ""
    while last is not None:
        gone, last = await transactions.write(functools.partial(_prune_some, old=old, after=last))
        count += gone
    return count


def _prune_some(connection: Connection, *, old: Sequence[ColumnElement[bool]], after: str) -> tuple[int, str | None]:
    """Delete a few instances; return how many, and the last id that was read, None if no more are left."""
    chosen = select(INSTANCES.c.id).where(*old, INSTANCES.c.id > after).order_by(INSTANCES.c.id).limit(PRUNED_AT_ONCE)
    found = connection.execute(chosen.with_for_update(skip_locked=True)).scalars().all()
    if not found:
        return 0, None
    connection.execute(delete(HISTORY).where(HISTORY.c.instance_id.in_(found)))
    connection.execute(delete(INSTANCES).where(INSTANCES.c.id.in_(found)))
    return len(found), found[-1]


def _became(before: StoredInstance, after: Instance, row: dict[str, Any]) -> StoredInstance:
    cancel = row["request"] == "cancel"
    return replace(
        before, instance=after, cancel=cancel, revision=row["revision"], runner=row["runner"], updated=row["updated"]
    )
