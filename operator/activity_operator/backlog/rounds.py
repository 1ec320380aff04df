"""The scheduler of backlog rounds: one asyncio task per place reads the backlogs of all pools there, again and again.

A place is a server, or a region with its endpoint and role. A `RoundReader` knows what is read and how often. The
scheduler knows which pools are in which round, lets more pools join before it reads, backs off after failures, and
keeps each pool's problem. Reading takes no task, so it can be cancelled at any time.
"""

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from activity_operator import backoff
from activity_operator.backlog.failures import Failures, RetryPolicy
from activity_operator.backlog.protocol import Key, SourceProblemError
from activity_operator.core.observation import SourceProblem

log = logging.getLogger(__name__)

#: A rest up to this many seconds is not cut short by a pool that joins: the pool waits for the next round.
SHORT_REST_SECONDS = 0.25


@dataclass(slots=True)
class RoundPool:
    """One pool in a round, and why its last read failed."""

    key: Key
    error: SourceProblem | None = None


Place = TypeVar("Place", bound=Hashable)
Pool = TypeVar("Pool", bound=RoundPool)


@dataclass(slots=True)
class Round(Generic[Place, Pool]):
    """The pools of one place; one asyncio task reads for them together."""

    place: Place
    pools: dict[Key, Pool] = field(default_factory=dict)
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    failures: Failures = field(default_factory=Failures)
    task: asyncio.Task[None] | None = None


class RoundReader(ABC, Generic[Place, Pool]):
    """Reads for the pools of a round, and says how long the round rests."""

    def choose_pools(self, place: Place, pools: Sequence[Pool]) -> Sequence[Pool]:
        """Return the pools that the next read is for; by default all of them."""
        del place
        return pools

    @abstractmethod
    async def read(self, place: Place, pools: Sequence[Pool]) -> bool:
        """Read for these pools; return False if each has a problem of its own, so that the round backs off.

        Raises SourceProblemError if the place as a whole cannot be used.
        """

    def failed(self, place: Place, pools: Sequence[Pool]) -> None:
        """Take note that the read for these pools failed as a whole."""

    @abstractmethod
    def wait_seconds(self, place: Place, pools: Sequence[Pool], took: float) -> float:
        """Return the seconds until the next read, after a read that took `took` seconds."""

    async def wait(self, place: Place, seconds: float) -> None:
        """Wait `seconds`, or less if the place announces something new."""
        del place
        await asyncio.sleep(seconds)

    async def close(self, place: Place) -> None:
        """Close the connections to the place, whose last pool has left; raises nothing."""


class Rounds(Generic[Place, Pool]):
    """The rounds of one kind of reader.

    A round waits `gather_seconds` for more pools before its first read and after a pool joined. `on_change(pool)` is
    called when a pool's problem changes, and by `changed`, but not for a pool that has left. `now` is Unix seconds.
    """

    def __init__(
        self,
        reader: RoundReader[Place, Pool],
        *,
        gather_seconds: float,
        retry: RetryPolicy,
        on_change: Callable[[Pool], None],
        now: Callable[[], float],
        jitter: backoff.Jitter = random.random,
    ) -> None:
        self._reader = reader
        self._gather_seconds = gather_seconds
        self._retry = retry
        self._on_change = on_change
        self._now = now
        self._jitter = jitter
        self._rounds: dict[Place, Round[Place, Pool]] = {}
        self._places: dict[Key, Place] = {}
        self._closing: dict[Place, asyncio.Task[None]] = {}

    def join(self, place: Place, pool: Pool) -> None:
        """Read for the pool from now on, instead of what was read for it before."""
        if self._places.get(pool.key, place) != place:
            self.leave(pool.key)
        current = self._rounds.get(place)
        if current is None:
            current = self._rounds[place] = Round(place)
        current.pools[pool.key] = pool
        self._places[pool.key] = place
        current.joined.set()
        if current.task is None:
            current.task = asyncio.get_running_loop().create_task(self._run(current, self._closing.get(place)))

    def leave(self, key: Key) -> None:
        """Read for the pool no more; the last pool of a place ends its round."""
        place = self._places.pop(key, None)
        if place is None:
            return
        current = self._rounds[place]
        del current.pools[key]
        if current.pools:
            return
        del self._rounds[place]
        closing = asyncio.get_running_loop().create_task(self._close(current))
        self._closing[place] = closing
        closing.add_done_callback(lambda done: self._closed(place, done))

    def find(self, key: Key) -> tuple[Place, Pool] | None:
        """Return the pool and its place, None if nothing is read for it."""
        place = self._places.get(key)
        return None if place is None else (place, self._rounds[place].pools[key])

    def pause(self) -> None:
        """End all rounds."""
        for key in tuple(self._places):
            self.leave(key)

    async def stop(self) -> None:
        """End all rounds and wait until every connection is closed."""
        self.pause()
        await asyncio.gather(*self._closing.values(), return_exceptions=True)

    def record_problem(self, pools: Sequence[Pool], problem: SourceProblemError) -> None:
        """Store the pools' problem with the time at which it began."""
        for pool in pools:
            before = pool.error
            pool.error = problem.noted(before, self._now())
            if pool.error != before:
                self.changed(pool)

    def changed(self, pool: Pool) -> None:
        """Call `on_change`, unless the pool left its round during the read."""
        found = self.find(pool.key)
        if found is not None and found[1] is pool:
            self._on_change(pool)

    async def _close(self, current: Round[Place, Pool]) -> None:
        if current.task is not None:
            current.task.cancel()
            await asyncio.gather(current.task, return_exceptions=True)
        await self._reader.close(current.place)

    def _closed(self, place: Place, closing: asyncio.Task[None]) -> None:
        if self._closing.get(place) is closing:
            del self._closing[place]

    async def _run(self, current: Round[Place, Pool], former: asyncio.Task[None] | None) -> None:
        if former is not None:
            # The former round closes the place's connections first; later it would close those of this round.
            await asyncio.wait((former,))
        await asyncio.sleep(self._gather_seconds)
        loop = asyncio.get_running_loop()
        while True:
            current.joined.clear()
            began = loop.time()
            if not await self._try(current):
                await asyncio.sleep(current.failures.pause_seconds(self._retry, self._jitter))
                continue
            pools = list(current.pools.values())
            await self._rest(current, self._reader.wait_seconds(current.place, pools, loop.time() - began))

    async def _rest(self, current: Round[Place, Pool], seconds: float) -> None:
        """Wait for the next round, or until a pool joins: a new pool does not wait for a long interval."""
        if seconds <= SHORT_REST_SECONDS:
            await self._reader.wait(current.place, seconds)
            return
        waits: set[asyncio.Future[Any]] = {
            asyncio.ensure_future(self._reader.wait(current.place, seconds)),
            asyncio.ensure_future(current.joined.wait()),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        await asyncio.sleep(self._gather_seconds)

    async def _try(self, current: Round[Place, Pool]) -> bool:
        """Read once; return False if the round has to back off."""
        pools = self._reader.choose_pools(current.place, list(current.pools.values()))
        try:
            if await self._reader.read(current.place, pools):
                current.failures.clear()
                return True
            current.failures.add()
        except SourceProblemError as problem:
            self._failed(current, pools, problem)
        except Exception as error:
            log.exception("reading the backlogs of %d pools failed unexpectedly", len(pools))
            text = f"reading the backlog failed: {type(error).__name__}"
            self._failed(current, pools, SourceProblemError("BackendUnreachable", text))
        return False

    def _failed(self, current: Round[Place, Pool], pools: Sequence[Pool], problem: SourceProblemError) -> None:
        current.failures.add(problem)
        if current.failures.shows(problem, self._retry):
            self.record_problem(pools, problem)
        self._reader.failed(current.place, pools)
