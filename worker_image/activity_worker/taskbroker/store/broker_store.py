"""A broker's store: one contract for SQLite and PostgreSQL, where several brokers may share it.

Each method is one transaction, or for upkeep several short ones. What a transaction has not committed has not happened:
a broker that dies leaves the activation as it was, and any broker of the store goes on.
"""

import time
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from sqlalchemy import Connection, Select, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from activity_worker.database.engine import connect, reading_engine, transactions_of
from activity_worker.taskbroker.lifecycle.inflight import Inflight
from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.lifecycle.upkeep import Change, UpkeepStep, advance
from activity_worker.taskbroker.store import statements
from activity_worker.taskbroker.store.insertion import insert_new
from activity_worker.taskbroker.store.statements import Report, TaskFilter
from activity_worker.taskbroker.store.tables import (
    ACTIVATIONS,
    DEAD_LETTERS,
    inflight_of,
    inflight_row,
    letter_row,
)

#: Seconds beyond a task's own deadline until the broker takes it back: the worker's report has to arrive first.
GRACE_SECONDS: Final = 3.0
#: How often a task is given out before its last deadline fails it.
MAX_ATTEMPTS: Final = 5
#: The most activations that upkeep moves in one transaction: short, because SQLite has one writer.
BATCH: Final = 200


@dataclass(frozen=True, slots=True)
class BrokerPolicy:
    """How a broker treats every task: seconds beyond a deadline, and how often a task is given out at most."""

    grace_seconds: float = GRACE_SECONDS
    max_attempts: int = MAX_ATTEMPTS


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """How many activations of an application and a namespace are in a state, and since when the first one is due."""

    application: str
    namespace: str
    state: ActivationState
    count: int
    oldest_due_at: float


class BrokerStore:
    """A broker's store. `open` it, and `close` it at the end. Methods raise SQLAlchemy's errors and OSError."""

    def __init__(
        self,
        engine: AsyncEngine,
        policy: BrokerPolicy | None = None,
        *,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self.engine = engine
        self.transactions = transactions_of(engine)
        self.clock = clock
        self._reader = reading_engine(engine)
        self._policy = policy or BrokerPolicy()
        self._new_id = new_id

    @classmethod
    async def open(
        cls, url: str, policy: BrokerPolicy | None = None, *, clock: Callable[[], float] = time.time
    ) -> Self:
        """Return the store at a URL, its tables up to date. Raises StoreUrlError and the database's errors."""
        from activity_worker.taskbroker.store.migrations import upgrade  # noqa: PLC0415 - alembic takes 0.3 s

        return cls(await connect(url, upgrade), policy, clock=clock)

    async def close(self) -> None:
        """Give the connections back."""
        await self.transactions.close()
        await self.engine.dispose()

    async def add(self, admitted: Sequence[Inflight]) -> int:
        """Keep activations, all or none; return how many are new. One whose id is there is left as it is."""
        if not admitted:
            return 0
        rows = [inflight_row(one) for one in admitted]

        return await self.transactions.write(lambda connection: insert_new(connection, rows))

    async def take(self, wanted: TaskFilter) -> bytes | None:
        """Give out the activation that has been due longest; return its message, None when none is pending.

        Its processing deadline and its attempts are set with that.
        """
        return await self.transactions.single(lambda connection: self._take(connection, wanted))

    async def report(self, reports: Sequence[Report], wanted: TaskFilter | None = None) -> tuple[int, bytes | None]:
        """Record what workers report, all or none, and give out the next activation if one is `wanted`.

        Returns how many reports changed an activation (one about an unknown task, or after another report, does not),
        and the next activation's message.
        """

        def reported(connection: Connection) -> tuple[int, bytes | None]:
            # In one order everywhere, so that two brokers never wait for each other.
            changed = sum(self._report(connection, one) for one in sorted(reports, key=lambda one: one.id))
            return changed, None if wanted is None else self._take(connection, wanted)

        alone = len(reports) == 1 and wanted is None
        return await (self.transactions.single(reported) if alone else self.transactions.write(reported))

    async def upkeep(self, step: UpkeepStep, *, beside_topic: bool = False) -> int:
        """Do one step of upkeep, in transactions of `BATCH` activations; return how many it moved.

        Activations that another broker holds are left to it, and with `beside_topic` those that go to a topic.
        """
        chosen = (statements.DUE_BESIDE_TOPIC if beside_topic else statements.DUE_IN)[step]

        def work(connection: Connection) -> int:
            remove = step is UpkeepStep.REMOVE_COMPLETE
            return self._remove(connection, step) if remove else self._advance(connection, step, chosen)

        moved = 0
        while True:
            last = await self.transactions.write(work)
            moved += last
            if last < BATCH:
                return moved

    async def upkeep_of(self, step: UpkeepStep, numbers: Collection[int]) -> None:
        """Do a step for the activations of these numbers, as if it had no topic."""
        chosen = statements.numbered(step, numbers)
        await self.transactions.write(lambda connection: self._advance(connection, step, chosen))

    async def depths(self) -> Sequence[QueueDepth]:
        """Return how many activations there are of each application, namespace and state. Reads the whole table."""
        columns = (ACTIVATIONS.c.application, ACTIVATIONS.c.namespace, ACTIVATIONS.c.state)
        counted = select(*columns, func.count().label("number"), func.min(ACTIVATIONS.c.due_at).label("oldest"))
        async with self._reader.connect() as connection:
            rows = (await connection.execute(counted.group_by(*columns))).all()
        return [
            QueueDepth(row.application, row.namespace, ActivationState(row.state), row.number, row.oldest)
            for row in rows
        ]

    async def get(self, task_id: str) -> Inflight | None:
        """Return an activation, None when there is none of this id."""
        async with self._reader.connect() as connection:
            row = (await connection.execute(select(ACTIVATIONS).where(ACTIVATIONS.c.id == task_id))).one_or_none()
        return None if row is None else inflight_of(row)

    def _take(self, connection: Connection, wanted: TaskFilter) -> bytes | None:
        values = {"now": self.clock(), "grace": self._policy.grace_seconds, **wanted.values}
        data: bytes | None = connection.execute(statements.GIVE_OUT[wanted.kind], values).scalar_one_or_none()
        return data

    def _report(self, connection: Connection, report: Report) -> int:
        changed: int = connection.execute(statements.REPORT[report.outcome], dict(report.values)).rowcount
        return changed

    def _advance(self, connection: Connection, step: UpkeepStep, chosen: Select[Any]) -> int:
        now = self.clock()
        rows = connection.execute(chosen, {"now": now, "batch": BATCH}).all()
        # Appended retries keep the order of their tasks.
        rows = sorted(rows, key=lambda row: row.number)
        changes = [
            advance(step, inflight_of(row), now, max_attempts=self._policy.max_attempts, new_id=self._new_id())
            for row in rows
        ]
        if changes:
            self._write(connection, [row.number for row in rows], changes)
        return len(changes)

    def _write(self, connection: Connection, numbers: Sequence[int], changes: Sequence[Change]) -> None:
        moved = [
            {"this": number, "state": after.state, "deadline": after.deadline, "failure": after.failure}
            for number, change in zip(numbers, changes, strict=True)
            if (after := change.after) is not None
        ]
        connection.execute(statements.MOVE, moved)
        if appended := [inflight_row(change.appended) for change in changes if change.appended is not None]:
            connection.execute(insert(ACTIVATIONS), appended)
        if letters := [letter_row(change.dead_letter) for change in changes if change.dead_letter is not None]:
            connection.execute(insert(DEAD_LETTERS), letters)

    def _remove(self, connection: Connection, step: UpkeepStep) -> int:
        chosen = connection.execute(statements.DUE_IN[step], {"now": self.clock(), "batch": BATCH}).all()
        connection.execute(delete(ACTIVATIONS).where(ACTIVATIONS.c.number.in_([row.number for row in chosen])))
        return len(chosen)
