"""A broker's store: one contract for SQLite and PostgreSQL, where several brokers may share it.

Each method is one transaction, or for upkeep several short ones. What a transaction has not committed has not happened:
a broker that dies leaves the activation as it was, and any broker of the store goes on.
"""

import itertools
import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from sqlalchemy import Connection, Select, func, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from activity_worker.database.engine import connect, reading_engine, transactions_of
from activity_worker.taskbroker.lifecycle.inflight import Inflight, Outcome
from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.lifecycle.upkeep import Change, UpkeepStep, advance, id_kept_until
from activity_worker.taskbroker.store import statements
from activity_worker.taskbroker.store.insertion import insert_new
from activity_worker.taskbroker.store.statements import GivenOut, Report, TaskFilter
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
#: The most bytes of activations that are given out together, beside the first one: a message holds 64 MiB.
ANSWER_BYTES: Final = 16 * 1024 * 1024
#: The most completed activations that are removed in one transaction, and the most ids that are forgotten: the rows
#: are not read, so it is as short as one of `BATCH`.
REMOVED_AT_ONCE: Final = 5 * BATCH


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
        self.policy = policy or BrokerPolicy()
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
        """Keep activations, all or none; return how many are new.

        One whose id is there is left as it is, and one whose id was there a moment ago is not taken again.
        """
        if not admitted:
            return 0
        rows = [inflight_row(one) for one in admitted]

        return await self.transactions.write(lambda connection: insert_new(connection, rows, self.clock()))

    async def add_giving(
        self, admitted: Sequence[Inflight], wanted: TaskFilter, most: int
    ) -> tuple[int, Sequence[GivenOut]]:
        """Keep activations, and give out at most `most`, in one transaction: see `add` and `exchange`."""
        rows = [inflight_row(one) for one in admitted]

        def added(connection: Connection) -> tuple[int, Sequence[GivenOut]]:
            return insert_new(connection, rows, self.clock()), self._take(connection, wanted, most)

        return await self.transactions.write(added)

    async def take(self, wanted: TaskFilter) -> bytes | None:
        """Give out the activation that has been due longest; return its message, None when none is pending.

        Its processing deadline and its attempts are set with that.
        """
        taken = await self.transactions.single(lambda connection: self._take(connection, wanted, 1))
        return taken[0].data if taken else None

    async def report(self, reports: Sequence[Report], wanted: TaskFilter | None = None) -> tuple[int, bytes | None]:
        """Record what workers report, and give out the next activation if one is `wanted`. See `exchange`."""
        changed, taken = await self.exchange(reports, wanted or TaskFilter(), 0 if wanted is None else 1)
        return changed.total(), taken[0].data if taken else None

    async def exchange(
        self, reports: Sequence[Report], wanted: TaskFilter, most: int
    ) -> tuple[Counter[Outcome], Sequence[GivenOut]]:
        """Record reports of workers and give out at most `most` activations, all in one transaction.

        Returns how many reports of each outcome changed an activation (one about an unknown task, or after another
        report, does not), and what was given out, the activation that has been due longest first.
        """

        joined = self._joined(reports, most)

        def exchanged(connection: Connection) -> tuple[Counter[Outcome], Sequence[GivenOut]]:
            if joined is not None:
                return self._exchange(connection, joined, reports, wanted, most)
            return self._report_all(connection, reports), self._take(connection, wanted, most) if most else ()

        # What does not fit into an answer is given back by a second statement. A broker that dies between the two is
        # like one that dies before it answers.
        single = joined is not None or not reports or len(reports) + most == 1
        return await (self.transactions.single if single else self.transactions.write)(exchanged)

    async def give_back(self, given: Sequence[GivenOut]) -> None:
        """Return tasks to pending that were given out and have certainly not left this process, without the attempt."""
        if given:
            await self.transactions.write(lambda connection: _give_back(connection, given))

    async def upkeep(self, step: UpkeepStep, *, beside_topic: bool = False) -> int:
        """Do one step of upkeep, in transactions of `BATCH` activations; return how many it moved.

        Activations that another broker holds are left to it, and with `beside_topic` those that go to a topic.
        """
        chosen = (statements.DUE_BESIDE_TOPIC if beside_topic else statements.DUE_IN)[step]

        def work(connection: Connection) -> int:
            return self._remove(connection) if removes else self._advance(connection, step, chosen)

        removes = step is UpkeepStep.REMOVE_COMPLETE
        full, moved = REMOVED_AT_ONCE if removes else BATCH, 0
        while True:
            last = await self.transactions.write(work)
            moved += last
            if last < full:
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

    def _joined(self, reports: Sequence[Report], most: int) -> Outcome | None:
        """Return the outcome of reports that go into one statement with what is given out; None for two statements."""
        outcomes = {report.outcome for report in reports}
        if most == 0 or len(outcomes) != 1 or self.engine.dialect.name != "postgresql":
            return None
        (outcome,) = outcomes
        return outcome if outcome in statements.REPORT_MANY["postgresql"] else None

    def _exchange(
        self, connection: Connection, outcome: Outcome, reports: Sequence[Report], wanted: TaskFilter, most: int
    ) -> tuple[Counter[Outcome], Sequence[GivenOut]]:
        """Record reports of the same outcome and give out activations, in one statement: one way to the server."""
        values = {"reported_ids": [one.id for one in reports], **self._values(wanted, most)}
        rows = connection.execute(statements.EXCHANGE[outcome, *wanted.kind], values).all()
        given = [row for row in rows if row.number is not None]
        return Counter({outcome: rows[0].changed}), self._fitting(connection, given)

    def _take(self, connection: Connection, wanted: TaskFilter, most: int) -> Sequence[GivenOut]:
        rows = connection.execute(statements.GIVE_OUT[wanted.kind], self._values(wanted, most)).all()
        return self._fitting(connection, rows)

    def _values(self, wanted: TaskFilter, most: int) -> dict[str, Any]:
        return {"now": self.clock(), "grace": self.policy.grace_seconds, "most": most, **wanted.values}

    @staticmethod
    def _fitting(connection: Connection, rows: Sequence[Any]) -> Sequence[GivenOut]:
        """Return what was given out, in order; give back what does not fit into one answer."""
        given = [
            GivenOut(row.number, row.attempts, row.data)
            for row in sorted(rows, key=lambda row: (row.due_at, row.number))
        ]
        sizes = itertools.accumulate(len(one.data) for one in given)
        fit = max(sum(size <= ANSWER_BYTES for size in sizes), 1)
        if given[fit:]:
            _give_back(connection, given[fit:])
        return given[:fit]

    def _report_all(self, connection: Connection, reports: Sequence[Report]) -> Counter[Outcome]:
        changed: Counter[Outcome] = Counter()
        database = connection.dialect.name
        for outcome in Outcome:
            some = sorted((one for one in reports if one.outcome is outcome), key=lambda one: one.id)
            many = statements.REPORT_MANY[database].get(outcome) if len(some) > 1 else None
            if many is not None:
                ids = [one.id for one in some]
                values = {"reported_ids": json.dumps(ids) if database == "sqlite" else ids}
                changed[outcome] += len(connection.execute(many, values).all())
                continue
            for one in some:
                changed[outcome] += connection.execute(statements.REPORT[outcome], dict(one.values)).rowcount
        return changed

    def _advance(self, connection: Connection, step: UpkeepStep, chosen: Select[Any]) -> int:
        now = self.clock()
        rows = connection.execute(chosen, {"now": now, "batch": BATCH}).all()
        # Appended retries keep the order of their tasks.
        rows = sorted(rows, key=lambda row: row.number)
        changes = [
            advance(step, inflight_of(row), now, max_attempts=self.policy.max_attempts, new_id=self._new_id())
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

    def _remove(self, connection: Connection) -> int:
        now = self.clock()
        chosen = connection.execute(statements.COMPLETED, {"batch": REMOVED_AT_ONCE}).all()
        if chosen:
            connection.execute(statements.REMOVE, {"numbers": [row.number for row in chosen]})
        # In one order everywhere, so that two brokers never wait for each other.
        ids = sorted((row.id, until) for row in chosen if (until := id_kept_until(row.added_at)) > now)
        if ids:
            kept = [{"id": task_id, "kept_until": until} for task_id, until in ids]
            connection.execute(statements.KEEP_IDS[connection.dialect.name], kept)
        connection.execute(statements.FORGET_IDS, {"now": now, "batch": REMOVED_AT_ONCE})
        return len(chosen)


def _give_back(connection: Connection, given: Sequence[GivenOut]) -> None:
    # In one order everywhere, so that two brokers never wait for each other.
    numbers = sorted((one.number, one.attempt) for one in given)
    connection.execute(statements.GIVE_BACK, [{"this": number, "attempt": attempt} for number, attempt in numbers])
