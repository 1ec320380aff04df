"""Where definitions and instances are kept: one contract for SQLite and PostgreSQL.

Every change of an instance is a revision, and a write names the revision it was made from: one from a runner whose
lease was taken over is refused (`LeaseLostError`), whatever its clock says.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from sqlalchemy import Row, insert, literal, select, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from activity_worker.steps.database import READS, connect
from activity_worker.steps.definition import Definition
from activity_worker.steps.instance import Instance
from activity_worker.steps.parse import DefinitionError, parse
from activity_worker.steps.record import parse_status, status_record
from activity_worker.wire.taskstore import CHANNEL, DEFINITIONS, HISTORY, INSTANCES, is_due

log = logging.getLogger(__name__)


class LeaseLostError(Exception):
    """Another runner has taken the instance over, or somebody changed it: what was done is not recorded here."""


class UnknownInstanceError(LookupError):
    """There is no instance of this id."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An instance as the store has it. `cancel` says that a person asked for it and it is not yet done."""

    instance: Instance
    revision: int
    runner: str
    cancel: bool
    created: float
    updated: float


@dataclass(frozen=True, slots=True)
class Revision:
    """One entry of an instance's history; `status` as in `record.status_record`, `data` None when unchanged."""

    number: int
    at: float
    runner: str
    status: Mapping[str, Any]
    next_run_time: float | None
    data: Mapping[str, Any] | None


Turn = Callable[[Definition, Stored], Instance]
TurnOrLeave = Callable[[Definition, Stored], Instance | None]


class TaskStore:
    """A task store. `open` it, and `close` it at the end."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self._reading = engine.execution_options(**{READS: True})
        self._single = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._definitions: dict[str, Definition] = {}

    @classmethod
    async def open(cls, url: str, *, migrate: bool = True) -> Self:
        """Return the store at a URL, its tables up to date. Raises StoreUrlError and the database's errors."""
        return cls(await connect(url, migrate=migrate))

    async def close(self) -> None:
        """Give the connections back."""
        await self.engine.dispose()

    async def sync(self, definition: Definition, now: float) -> None:
        """Keep a version of a task; nothing happens when it is there."""
        if definition.id in self._definitions:
            return
        row = {"id": definition.id, "name": definition.name, "source": dict(definition.source), "created": now}
        async with self.engine.begin() as connection:
            await connection.execute(self._insert_once(DEFINITIONS).values(row).on_conflict_do_nothing())
        self._definitions[definition.id] = definition

    async def definition(self, definition_id: str) -> Definition:
        """Return a version of a task. Raises LookupError when the store has none of this id."""
        if (known := self._definitions.get(definition_id)) is not None:
            return known
        async with self._reading.connect() as connection:
            return await self._definition(connection, definition_id)

    async def versions(self, tasks: Collection[str]) -> Sequence[Definition]:
        """Return every version of these tasks that any instance may have been created with, and that can be read here.

        One that cannot was kept by a newer program: it is left to such.
        """
        chosen = select(DEFINITIONS.c.id).where(DEFINITIONS.c.name.in_(tuple(tasks)))
        found = []
        async with self._reading.connect() as connection:
            for one in (await connection.execute(chosen)).scalars().all():
                try:
                    found.append(await self._definition(connection, one))
                except DefinitionError as error:
                    log.warning("version %s is left to other runners: %s", one, error)
        return found

    async def create(self, instance: Instance, now: float) -> bool:
        """Keep a new instance; False when one of its id is there already, which is left as it is."""
        row = _row(instance) | {
            "id": instance.id,
            "task_name": instance.task_name,
            "definition_id": instance.definition_id,
            "request": "",
            "revision": 1,
            "runner": "",
            "created": now,
            "updated": now,
        }
        async with self.engine.begin() as connection:
            made = await connection.execute(self._insert_once(INSTANCES).values(row).on_conflict_do_nothing())
            if made.rowcount == 0:
                return False
            await connection.execute(insert(HISTORY).values(_note(instance, 1, "", now, instance.data)))
            await self._announce(connection, instance.task_name)
        return True

    async def claim(
        self, runner: str, now: float, versions: Collection[str], turn: TurnOrLeave, *, only: str | None = None
    ) -> Stored | None:
        """Take the instance that has been due longest, of these versions, or just the one named; None when none is.

        `turn` says what it becomes by that (running, until the lease ends; or complete), and that is saved first. None
        leaves the instance alone.
        """
        chosen = (
            select(INSTANCES)
            .where(is_due(now), INSTANCES.c.definition_id.in_(tuple(versions)))
            .order_by(INSTANCES.c.next_run_time, INSTANCES.c.created)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        if only is not None:
            chosen = chosen.where(INSTANCES.c.id == only)
        async with self.engine.begin() as connection:
            row = (await connection.execute(chosen)).one_or_none()
            if row is None:
                return None
            stored = _stored(row)
            after = turn(await self._definition(connection, stored.instance.definition_id), stored)
            return None if after is None else await self._turn(connection, row, runner, now, lambda *_: after)

    async def record(self, held: Stored, now: float, turn: Turn) -> Stored:
        """Save what an instance became, if it is still held as it was. Raises LeaseLostError when it is not.

        `turn` may be asked twice: first for what we hold, and again when a person wished something meanwhile.
        """
        after = turn(await self.definition(held.instance.definition_id), held)
        if (saved := await self._record_unchanged(held, after, now)) is not None:
            return saved
        async with self.engine.begin() as connection:
            row = await self._locked(connection, held.instance.id)
            if row.revision != held.revision or row.runner != held.runner:
                raise LeaseLostError(f"instance {held.instance.id} is at revision {row.revision}, not {held.revision}")
            return await self._turn(connection, row, held.runner, now, turn)

    async def _record_unchanged(self, held: Stored, after: Instance, now: float) -> Stored | None:
        """Write the next revision if nothing at all has changed since, in one statement where that can be had."""
        definition = await self.definition(after.definition_id)
        wish = _wish(held, after)
        revision = held.revision + 1
        values = _row(after) | {"request": wish, "revision": revision, "updated": now}
        here = (
            INSTANCES.c.id == after.id,
            INSTANCES.c.revision == held.revision,
            INSTANCES.c.runner == held.runner,
            INSTANCES.c.request == ("cancel" if held.cancel else ""),
            INSTANCES.c.paused == held.instance.paused,
        )
        changed = after.data if after.data != held.instance.data else None
        written = update(INSTANCES).where(*here).values(values)
        note = _note(after, revision, held.runner, now, changed, definition)
        if self.engine.dialect.name == "postgresql":
            kept = written.returning(INSTANCES.c.id).cte("kept")
            row = [literal(value, HISTORY.c[name].type) for name, value in note.items()]
            noting = insert(HISTORY).from_select(list(note), select(*row).select_from(kept))
            async with self._single.connect() as connection:
                done = (await connection.execute(noting)).rowcount == 1
        else:
            async with self.engine.begin() as connection:
                done = (await connection.execute(written)).rowcount == 1
                if done:
                    await connection.execute(insert(HISTORY).values(note))
        return Stored(after, revision, held.runner, wish == "cancel", held.created, now) if done else None

    async def renew(self, held: Stored, until: float) -> None:
        """Move the end of a lease. Raises LeaseLostError when another runner has the instance."""
        mine = (INSTANCES.c.id == held.instance.id, INSTANCES.c.revision == held.revision)
        async with self.engine.begin() as connection:
            done = await connection.execute(update(INSTANCES).where(*mine).values(next_run_time=until))
        if done.rowcount == 0:
            raise LeaseLostError(f"instance {held.instance.id} is not at revision {held.revision} any more")

    async def change(self, instance_id: str, now: float, turn: Turn, *, cancel: bool | None = None) -> Stored:
        """Change an instance as a person asks; a call that runs goes on, and its runner's next write sees the change.

        `cancel` sets or clears the wish to cancel, None leaves it. Raises UnknownInstanceError.
        """
        async with self.engine.begin() as connection:
            row = await self._locked(connection, instance_id)
            stored = await self._turn(connection, row, row.runner, now, turn, cancel=cancel, fence=False)
            await self._announce(connection, stored.instance.task_name)
            return stored

    async def get(self, instance_id: str) -> Stored:
        """Return an instance. Raises UnknownInstanceError."""
        async with self._reading.connect() as connection:
            row = (await connection.execute(select(INSTANCES).where(INSTANCES.c.id == instance_id))).one_or_none()
        if row is None:
            raise UnknownInstanceError(f"there is no task instance {instance_id!r}")
        return _stored(row)

    async def listed(self, tasks: Collection[str] = (), *, limit: int = 100) -> Sequence[Stored]:
        """Return the newest instances, of these tasks or of all."""
        chosen = select(INSTANCES).order_by(INSTANCES.c.created.desc(), INSTANCES.c.id).limit(limit)
        if tasks:
            chosen = chosen.where(INSTANCES.c.task_name.in_(tuple(tasks)))
        async with self._reading.connect() as connection:
            return [_stored(row) for row in (await connection.execute(chosen)).all()]

    async def history(self, instance_id: str) -> Sequence[Revision]:
        """Return every revision of an instance, oldest first."""
        chosen = select(HISTORY).where(HISTORY.c.instance_id == instance_id).order_by(HISTORY.c.revision)
        async with self._reading.connect() as connection:
            rows = (await connection.execute(chosen)).all()
        return [Revision(row.revision, row.at, row.runner, row.status, row.next_run_time, row.data) for row in rows]

    async def next_due(self, versions: Collection[str]) -> float | None:
        """Return when the next instance of these versions is due, None when none will be."""
        chosen = (
            select(INSTANCES.c.next_run_time)
            .where(is_due(float("inf")), INSTANCES.c.definition_id.in_(tuple(versions)))
            .order_by(INSTANCES.c.next_run_time)
            .limit(1)
        )
        async with self._reading.connect() as connection:
            found: float | None = (await connection.execute(chosen)).scalar_one_or_none()
            return found

    async def _turn(
        self,
        connection: AsyncConnection,
        row: Row[Any],
        runner: str,
        now: float,
        turn: Turn,
        *,
        cancel: bool | None = None,
        fence: bool = True,
    ) -> Stored:
        """Write the next revision. Without `fence` a runner that holds the instance goes on holding it."""
        before = _stored(row)
        if cancel is not None:
            before = replace(before, cancel=cancel)
        definition = await self._definition(connection, before.instance.definition_id)
        after = turn(definition, before)
        keeps = not fence and before.instance.status.running
        revision = before.revision if keeps else before.revision + 1
        wish = _wish(before, after)
        values = _row(after) | {"request": wish, "revision": revision, "runner": runner, "updated": now}
        if keeps:
            # The runner's own lease, renewed meanwhile perhaps, is not ours to move.
            values = {"request": wish, "paused": after.paused}
        await connection.execute(update(INSTANCES).where(INSTANCES.c.id == after.id).values(values))
        if not keeps:
            changed = after.data if after.data != before.instance.data else None
            note = _note(after, revision, runner, now, changed, definition)
            await connection.execute(insert(HISTORY).values(note))
        return Stored(after, revision, runner, wish == "cancel", before.created, now)

    async def _locked(self, connection: AsyncConnection, instance_id: str) -> Row[Any]:
        chosen = select(INSTANCES).where(INSTANCES.c.id == instance_id).with_for_update()
        row = (await connection.execute(chosen)).one_or_none()
        if row is None:
            raise UnknownInstanceError(f"there is no task instance {instance_id!r}")
        return row

    async def _definition(self, connection: AsyncConnection, definition_id: str) -> Definition:
        if definition_id not in self._definitions:
            chosen = select(DEFINITIONS.c.source).where(DEFINITIONS.c.id == definition_id)
            source = (await connection.execute(chosen)).scalar_one_or_none()
            if source is None:
                raise LookupError(f"the store has no task version {definition_id}")
            self._definitions[definition_id] = parse(source)
        return self._definitions[definition_id]

    async def _announce(self, connection: AsyncConnection, task: str) -> None:
        if self.engine.dialect.name == "postgresql":
            await connection.execute(text("SELECT pg_notify(:channel, :task)"), {"channel": CHANNEL, "task": task})

    def _insert_once(self, table: Any) -> Any:
        return (postgresql if self.engine.dialect.name == "postgresql" else sqlite).insert(table)


def _wish(before: Stored, after: Instance) -> str:
    return "cancel" if before.cancel and not (after.complete or after.status.reverse) else ""


def _note(
    instance: Instance,
    revision: int,
    runner: str,
    now: float,
    data: Mapping[str, Any] | None,
    definition: Definition | None = None,
) -> dict[str, Any]:
    """Return the row of the history; `data` None says that it has not changed."""
    return {
        "instance_id": instance.id,
        "revision": revision,
        "at": now,
        "runner": runner,
        "status": status_record(instance, definition),
        "next_run_time": instance.next_run_time,
        "data": None if data is None else dict(data),
    }


def _row(instance: Instance) -> dict[str, Any]:
    return {
        "data": dict(instance.data),
        "status": status_record(instance),
        "next_run_time": instance.next_run_time,
        "complete": instance.complete,
        "success": instance.success,
        "paused": instance.paused,
    }


def _stored(row: Row[Any]) -> Stored:
    instance = Instance(
        id=row.id,
        task_name=row.task_name,
        definition_id=row.definition_id,
        data=row.data,
        next_run_time=row.next_run_time,
        status=parse_status(row.status),
        complete=row.complete,
        success=row.success,
        paused=row.paused,
    )
    return Stored(instance, row.revision, row.runner, row.request == "cancel", row.created, row.updated)
