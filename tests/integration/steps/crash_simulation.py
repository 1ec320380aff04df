"""Simulated processes that die at a chosen write: before it, within its transaction, or after it.

A dead process stops there: it writes nothing more, and its calls are abandoned.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection

from activity_worker.database.engine import Transactions
from activity_worker.steps import RunnerOptions, TaskStore
from activity_worker.steps.runner.tasks import Tasks

T = TypeVar("T")
Moment = Literal["before", "within", "after"]
LEASE = 60.0


class CrashError(BaseException):
    """The process has died; a BaseException, so that no error handler catches it."""


@dataclass
class CrashPlan:
    """Which writes kill the process that makes them, counted from 1 over all processes, and at what moment.

    `spared` counts writes that were cancelled before that moment: a renewal, when the call that it was for has
    returned.
    """

    moment: Moment = "before"
    last: frozenset[int] = frozenset()
    writes: int = 0
    crashes: int = 0
    spared: int = 0

    def crashes_now(self) -> bool:
        """Count a write; return whether its process crashes."""
        self.writes += 1
        return self.writes in self.last


class CrashingTransactions:
    """One process's transactions to the database; its plan may end it at any write."""

    def __init__(self, transactions: Transactions, plan: CrashPlan) -> None:
        self._transactions = transactions
        self._plan = plan
        self.crashed = asyncio.Event()
        self.wrote = asyncio.Condition()
        self.writes = 0

    async def write(self, work: Callable[[Connection], T]) -> T:
        """See Transactions."""
        return await self._write(self._transactions.write, work)

    async def single(self, work: Callable[[Connection], T]) -> T:
        """See Transactions."""
        return await self._write(self._transactions.single, work)

    async def close(self) -> None:
        """See Transactions."""
        await self._transactions.close()

    async def _write(self, way: Callable[..., Awaitable[T]], work: Callable[[Connection], T]) -> T:
        if self.crashed.is_set():
            raise CrashError
        ends, moment = self._plan.crashes_now(), self._plan.moment
        if ends and moment == "before":
            self._crash()

        def torn(connection: Connection) -> T:
            work(connection)
            raise CrashError

        try:
            done = await way(torn if ends and moment == "within" else work)
        except CrashError:
            self._crash()
        except asyncio.CancelledError:
            self._plan.spared += ends
            raise
        if ends:
            self._crash()
        async with self.wrote:
            self.writes += 1
            self.wrote.notify_all()
        return done

    def _crash(self) -> None:
        self._plan.crashes += 1
        self.crashed.set()
        raise CrashError


@dataclass
class CrashSimulation:
    """Runners and people on one store. The clock stands still except when a runner waits."""

    store: TaskStore
    tasks: Tasks
    plan: CrashPlan
    now: float = 1000.0
    #: The runners' effects on the outside world: key of the effect -> name, in order, each once.
    effects: dict[str, str] = field(default_factory=dict)
    processes: list[CrashingTransactions] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tasks._clock = lambda: self.now

    async def person(self, act: Callable[[TaskStore], Awaitable[T]]) -> T:
        """Act as a person who repeats the action when its process has died."""
        while True:
            done, value = await self._in_a_process(act)
            if done:
                assert value is not None
                return value

    async def run(self, instance: str, *, calls: int | None = None, lease_seconds: float = LEASE) -> None:
        """Run one runner after the other until the instance is complete or waits, or for `calls` calls."""
        while True:

            async def work(store: TaskStore) -> bool:
                runner = self.tasks.runner(store, RunnerOptions(f"r{len(self.processes)}", lease_seconds=lease_seconds))
                held = await runner.take(runner.options.name, only=instance)
                while held is not None and held.instance.status.running:
                    if calls is not None and len(self.effects) + 1 >= calls:
                        runner.stop()
                    held = await runner._one_call(held)
                return True

            await self._in_a_process(work)
            there = (await self.store.get(instance)).instance
            if there.next_run_time is None or there.paused:
                return
            if calls is not None and len(self.effects) >= calls and not there.status.running:
                return
            # Set the clock to the end of the lease, or of the delay.
            self.now = max(self.now, there.next_run_time)

    async def _in_a_process(self, act: Callable[[TaskStore], Awaitable[T]]) -> tuple[bool, T | None]:
        """Act in a process of its own; return whether it was finished, and its result."""
        store = TaskStore(self.store.engine)
        transactions = store._transactions = CrashingTransactions(store._transactions, self.plan)
        self.processes.append(transactions)
        doing = asyncio.ensure_future(act(store))
        crashing = asyncio.ensure_future(transactions.crashed.wait())
        await asyncio.wait({doing, crashing}, return_when=asyncio.FIRST_COMPLETED)
        for one in (doing, crashing):
            if not one.done():
                one.cancel()
        await asyncio.gather(doing, crashing, return_exceptions=True)
        await transactions.close()
        if transactions.crashed.is_set():
            return False, None
        return True, doing.result()

    async def renewals(self, count: int) -> None:
        """Wait until the present runner has made `count` writes; during a call these can only renew its lease."""
        transactions = self.processes[-1]
        most = transactions.writes + count
        async with transactions.wrote:
            await transactions.wrote.wait_for(lambda: transactions.writes >= most)

    def effect(self, key: str, name: str) -> None:
        """Record an effect on the world, once for its key."""
        self.effects.setdefault(key, name)


async def ending(simulation: CrashSimulation, instance: str) -> tuple[Any, ...]:
    """Return everything that must be equal with and without crashes."""
    stored = await simulation.store.get(instance)
    this = stored.instance
    failures = [(one.step_num, one.sub_step, one.error.code) for one in this.status.failures]
    numbers = [one.number for one in await simulation.store.history(instance)]
    assert numbers == list(range(1, stored.revision + 1)), "a revision and its line of history were written apart"
    how = (
        this.complete,
        this.success,
        this.paused,
        stored.cancel,
        this.status.round,
        len(await simulation.store.listed()),
    )
    return (*how, this.data, this.status.done, this.status.ignored, failures, list(simulation.effects.values()))
