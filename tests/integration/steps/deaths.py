"""Simulated processes that die at a chosen write: before it, within its transaction, or after it.

A dead process stops there: it writes nothing more, and its calls are abandoned.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection

from activity_worker.steps import RunnerOptions, TaskStore
from activity_worker.steps.runner.tasks import Tasks
from activity_worker.steps.store.transactions import Transactions

T = TypeVar("T")
Moment = Literal["before", "within", "after"]
LEASE = 60.0


class DeathError(BaseException):
    """The process has died; a BaseException, so that no error handler catches it."""


@dataclass
class Fate:
    """Which writes kill the process that makes them, counted from 1 over all processes, and at what moment.

    `spared` counts writes that were cancelled before that moment: a renewal, when the call that it was for has
    returned.
    """

    moment: Moment = "before"
    last: frozenset[int] = frozenset()
    writes: int = 0
    deaths: int = 0
    spared: int = 0

    def met(self) -> bool:
        """Count a write; return whether its process dies."""
        self.writes += 1
        return self.writes in self.last


class MortalGate:
    """One process's gate to the database; its fate may end it at any write."""

    def __init__(self, gate: Transactions, fate: Fate) -> None:
        self._transactions = gate
        self._fate = fate
        self.died = asyncio.Event()
        self.wrote = asyncio.Condition()
        self.writes = 0

    async def write(self, work: Callable[[Connection], T]) -> T:
        """See Gate."""
        return await self._write(self._transactions.write, work)

    async def single(self, work: Callable[[Connection], T]) -> T:
        """See Gate."""
        return await self._write(self._transactions.single, work)

    async def close(self) -> None:
        """See Gate."""
        await self._transactions.close()

    async def _write(self, way: Callable[..., Awaitable[T]], work: Callable[[Connection], T]) -> T:
        if self.died.is_set():
            raise DeathError
        ends, moment = self._fate.met(), self._fate.moment
        if ends and moment == "before":
            self._die()

        def torn(connection: Connection) -> T:
            work(connection)
            raise DeathError

        try:
            done = await way(torn if ends and moment == "within" else work)
        except DeathError:
            self._die()
        except asyncio.CancelledError:
            self._fate.spared += ends
            raise
        if ends:
            self._die()
        async with self.wrote:
            self.writes += 1
            self.wrote.notify_all()
        return done

    def _die(self) -> None:
        self._fate.deaths += 1
        self.died.set()
        raise DeathError


@dataclass
class Stage:
    """Runners and people on one store. The clock stands still except when a runner waits."""

    store: TaskStore
    tasks: Tasks
    fate: Fate
    now: float = 1000.0
    #: The runners' effects on the outside world: key of the effect -> name, in order, each once.
    effects: dict[str, str] = field(default_factory=dict)
    gates: list[MortalGate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tasks._clock = lambda: self.now

    async def person(self, act: Callable[[TaskStore], Awaitable[T]]) -> T:
        """Act as a person who repeats the action when its process has died."""
        while True:
            done, value = await self._lived(act)
            if done:
                assert value is not None
                return value

    async def run(self, instance: str, *, calls: int | None = None, lease_seconds: float = LEASE) -> None:
        """Run one runner after the other until the instance is complete or waits, or for `calls` calls."""
        while True:

            async def work(store: TaskStore) -> bool:
                runner = self.tasks.runner(store, RunnerOptions(f"r{len(self.gates)}", lease_seconds=lease_seconds))
                held = await runner.take(runner.options.name, only=instance)
                while held is not None and held.instance.status.running:
                    if calls is not None and len(self.effects) + 1 >= calls:
                        runner.stop()
                    held = await runner._one_call(held)
                return True

            await self._lived(work)
            there = (await self.store.get(instance)).instance
            if there.next_run_time is None or there.paused:
                return
            if calls is not None and len(self.effects) >= calls and not there.status.running:
                return
            # Set the clock to the end of the lease, or of the delay.
            self.now = max(self.now, there.next_run_time)

    async def _lived(self, act: Callable[[TaskStore], Awaitable[T]]) -> tuple[bool, T | None]:
        """Act in a process of its own; return whether it was finished, and its result."""
        store = TaskStore(self.store.engine)
        gate = store._transactions = MortalGate(store._transactions, self.fate)
        self.gates.append(gate)
        doing = asyncio.ensure_future(act(store))
        dying = asyncio.ensure_future(gate.died.wait())
        await asyncio.wait({doing, dying}, return_when=asyncio.FIRST_COMPLETED)
        for one in (doing, dying):
            if not one.done():
                one.cancel()
        await asyncio.gather(doing, dying, return_exceptions=True)
        await gate.close()
        if gate.died.is_set():
            return False, None
        return True, doing.result()

    async def renewals(self, count: int) -> None:
        """Wait until the present runner has made `count` writes; during a call these can only renew its lease."""
        gate = self.gates[-1]
        most = gate.writes + count
        async with gate.wrote:
            await gate.wrote.wait_for(lambda: gate.writes >= most)

    def effect(self, key: str, name: str) -> None:
        """Record an effect on the world, once for its key."""
        self.effects.setdefault(key, name)


async def ending(stage: Stage, instance: str) -> tuple[Any, ...]:
    """Return everything that must be equal with and without deaths."""
    stored = await stage.store.get(instance)
    this = stored.instance
    failures = [(one.step_num, one.sub_step, one.error.code) for one in this.status.failures]
    numbers = [one.number for one in await stage.store.history(instance)]
    assert numbers == list(range(1, stored.revision + 1)), "a revision and its line of history were written apart"
    how = (this.complete, this.success, this.paused, stored.cancel, this.status.round, len(await stage.store.listed()))
    return (*how, this.data, this.status.done, this.status.ignored, failures, list(stage.effects.values()))
