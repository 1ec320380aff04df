"""Counts the tasks that wait at sources which can be asked: one round at a time for all pools of a server.

What a round finds is kept; nobody is told unless it changed. Counts take no task, so they may be cut short at any time.
A server that cannot be asked is asked again ever less often, and its pools say so when that is more than a blip.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from activity_operator.backlog import backoff
from activity_operator.backlog.observed import Observed
from activity_operator.backlog.protocol import Key, SourceProblemError
from activity_operator.core.observation import SourceError
from activity_operator.core.signal import Signal

log = logging.getLogger(__name__)

#: What is counted at a place: a list's key, a query, names of tasks.
Item = str

#: The least time between two tellings of a pool's count; one that was quiet for so long is told at once.
TELL_SECONDS = 0.25
#: How long a round waits for the other pools of the same start.
GATHER_SECONDS = 0.02
#: The least wait between two rounds, as a share of the interval: a slow server is not asked without a pause.
LEAST_REST = 0.25
#: Waits after rounds that failed, and how many in a row are more than a blip.
RETRY_FIRST_SECONDS = 0.25
RETRY_CAP_SECONDS = 15.0
TOLD_FAILURES = 3
#: What a round may take before it counts as failed.
ROUND_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Place:
    """A server and how often it is asked. Its URL and token may be secret and are in no repr."""

    url: str = field(repr=False)
    interval_seconds: float
    token: str = field(default="", repr=False)


class Counter(Protocol):
    """Asks one kind of server, and tells `observed` of it. Raises SourceProblemError when it cannot be asked at all."""

    observed: Observed

    async def read(self, place: Place, items: Sequence[Item]) -> Sequence[int | SourceProblemError]:
        """Return for each item how many tasks wait, or why that cannot be told."""
        ...

    async def rest(self, place: Place, seconds: float) -> None:
        """Wait for the next round, or until something is announced."""
        ...

    async def leave(self, place: Place) -> None:
        """Close what is open there; raises nothing."""
        ...


@dataclass(slots=True)
class _Pool:
    """One pool's count; `told` is when the last change was told (the loop's time), `untold` whether one was not."""

    key: Key
    item: Item
    tasks: int | None = None
    error: SourceError | None = None
    told: float = float("-inf")
    untold: bool = False


@dataclass(slots=True)
class _Group:
    """The pools of one place, read together by one task. `observed_at` is when it was last asked with success (Unix
    seconds).
    """

    place: Place
    pools: dict[Key, _Pool] = field(default_factory=dict)
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    observed_at: float = 0.0
    failures: int = 0
    task: asyncio.Task[None] | None = None


class Counting:
    """The counts of all pools over one kind of server. `on_change(key)` is called when a count or an error changes.

    `exact` is what the signals are; `now` is Unix seconds.
    """

    def __init__(
        self,
        counter: Counter,
        *,
        exact: bool,
        on_change: Callable[[Key], None],
        now: Callable[[], float],
        dice: backoff.Dice = random.random,
    ) -> None:
        self._counter = counter
        self._exact = exact
        self._on_change = on_change
        self._now = now
        self._dice = dice
        self._groups: dict[Place, _Group] = {}
        self._places: dict[Key, Place] = {}
        self._leaving: dict[Place, asyncio.Task[None]] = {}

    def order(self, key: Key, place: Place | None, item: Item = "") -> None:
        """Count for the pool from now on, or with None no more. Cheap when nothing changed; raises nothing."""
        before = self._places.get(key)
        if before is not None and before != place:
            self._leave(key, before)
        if place is None:
            return
        group = self._groups.get(place)
        if group is None:
            group = self._groups[place] = _Group(place)
        known = group.pools.get(key)
        if known is None or known.item != item:
            group.pools[key] = _Pool(key, item)
            self._places[key] = place
            group.joined.set()
        if group.task is None:
            group.task = asyncio.get_running_loop().create_task(self._run(group, self._leaving.get(place)))

    def said(self, key: Key) -> tuple[Signal | None, SourceError | None]:
        """Return what waits for the pool as last counted, and why it cannot be counted now if so."""
        place = self._places.get(key)
        group = None if place is None else self._groups[place]
        pool = None if group is None else group.pools.get(key)
        if group is None or pool is None:
            return None, None
        signal = None if pool.tasks is None else Signal(pool.tasks, self._exact, group.observed_at)
        return signal, pool.error

    def pause(self) -> None:
        """Count no more for any pool, because this process leads no more."""
        for key in tuple(self._places):
            self.order(key, None)

    async def stop(self) -> None:
        """Count no more, and wait until every connection is closed."""
        self.pause()
        await asyncio.gather(*self._leaving.values(), return_exceptions=True)

    def _leave(self, key: Key, place: Place) -> None:
        group = self._groups[place]
        del group.pools[key], self._places[key]
        if group.pools:
            return
        del self._groups[place]
        closing = asyncio.get_running_loop().create_task(self._close(group))
        self._leaving[place] = closing
        closing.add_done_callback(lambda done: self._left(place, done))

    def _left(self, place: Place, closing: asyncio.Task[None]) -> None:
        if self._leaving.get(place) is closing:
            del self._leaving[place]

    async def _close(self, group: _Group) -> None:
        if group.task is not None:
            group.task.cancel()
            await asyncio.gather(group.task, return_exceptions=True)
        await self._counter.leave(group.place)

    async def _run(self, group: _Group, former: asyncio.Task[None] | None) -> None:
        loop = asyncio.get_running_loop()
        if former is not None:
            # What the place's former pools had open is closed first, or it would be closed under these.
            await asyncio.wait((former,))
        await asyncio.sleep(GATHER_SECONDS)
        while True:
            group.joined.clear()
            began = loop.time()
            wait = await self._round(group)
            if wait:
                await asyncio.sleep(wait)
                continue
            interval = group.place.interval_seconds
            rest = max(interval - (loop.time() - began), interval * LEAST_REST)
            if any(pool.untold for pool in group.pools.values()):
                # What has still to be told does not wait for a server that is rarely asked.
                rest = min(rest, TELL_SECONDS)
            await self._rest(group, rest)

    async def _rest(self, group: _Group, seconds: float) -> None:
        """Wait for the next round; a pool that joins a slow one is not kept waiting for it."""
        if seconds <= TELL_SECONDS:
            await self._counter.rest(group.place, seconds)
            return
        waits = {
            asyncio.ensure_future(self._counter.rest(group.place, seconds)),
            asyncio.ensure_future(group.joined.wait()),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        await asyncio.sleep(GATHER_SECONDS)

    async def _round(self, group: _Group) -> float:
        """Count once; returns the seconds to wait before the next try, 0 when it went well."""
        pools = list(group.pools.values())
        asked_at = self._now()
        try:
            async with asyncio.timeout(ROUND_SECONDS):
                found = await self._counter.read(group.place, [pool.item for pool in pools])
            counted = list(zip(pools, found, strict=True))
        except SourceProblemError as problem:
            return self._failed(group, pools, problem)
        except TimeoutError:
            silence = SourceProblemError("BackendUnreachable", f"no answer within {ROUND_SECONDS:.0f} s")
            return self._failed(group, pools, silence)
        except Exception as error:
            log.exception("counting for %d pools failed unexpectedly", len(pools))
            return self._failed(group, pools, SourceProblemError("BackendUnreachable", type(error).__name__))
        group.observed_at = asked_at
        now = asyncio.get_running_loop().time()
        for pool, count in counted:
            if count != pool.tasks or pool.error is not None or pool.untold:
                self._learn(pool, count, now)
        if any(isinstance(count, int) for count in found):
            group.failures = 0
            return 0.0
        # A server that refuses everybody one by one is asked less often, too.
        group.failures += 1
        return self._pause_after(group)

    def _learn(self, pool: _Pool, count: int | SourceProblemError, now: float) -> None:
        if isinstance(count, SourceProblemError):
            pool.tasks = None
            self._tell([pool], count)
            return
        first = pool.tasks is None or pool.error is not None
        pool.untold = pool.untold or first or count != pool.tasks
        pool.tasks, pool.error = count, None
        if pool.untold and (first or now - pool.told >= TELL_SECONDS):
            self._changed(pool, now)

    def _failed(self, group: _Group, pools: list[_Pool], problem: SourceProblemError) -> float:
        group.failures += 1
        if problem.reason != "BackendUnreachable" or group.failures >= TOLD_FAILURES:
            self._tell(pools, problem)
        for pool in pools:
            # Until the next success may be long.
            if pool.untold:
                self._changed(pool, asyncio.get_running_loop().time())
        return self._pause_after(group)

    def _pause_after(self, group: _Group) -> float:
        return backoff.capped(group.failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS, self._dice)

    def _tell(self, pools: Sequence[_Pool], problem: SourceProblemError) -> None:
        """Keep the error with the time it began; call back once a change."""
        now = asyncio.get_running_loop().time()
        for pool in pools:
            before = pool.error
            pool.error = problem.noted(before, self._now())
            if pool.error != before:
                self._changed(pool, now)

    def _changed(self, pool: _Pool, now: float) -> None:
        """Tell of a pool, unless it left while it was counted."""
        pool.told, pool.untold = now, False
        place = self._places.get(pool.key)
        if place is not None and self._groups[place].pools.get(pool.key) is pool:
            self._on_change(pool.key)
