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
from activity_operator.backlog.call_metrics import CallObserver
from activity_operator.backlog.protocol import Key, SourceProblemError
from activity_operator.core.observation import BacklogCount, SourceProblem

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
class SourceEndpoint:
    """A server and how often it is asked. Its URL and token may be secret and are in no repr."""

    url: str = field(repr=False)
    interval_seconds: float
    token: str = field(default="", repr=False)


class BacklogReader(Protocol):
    """Asks one kind of server, and tells `observed` of it. Raises SourceProblemError when it cannot be asked at all."""

    observed: CallObserver

    async def read(self, endpoint: SourceEndpoint, items: Sequence[Item]) -> Sequence[int | SourceProblemError]:
        """Return for each item how many tasks wait, or why that cannot be told."""
        ...

    async def wait(self, endpoint: SourceEndpoint, seconds: float) -> None:
        """Wait for the next round, or until something is announced."""
        ...

    async def close(self, endpoint: SourceEndpoint) -> None:
        """Close what is open there; raises nothing."""
        ...


@dataclass(slots=True)
class _CountedPool:
    """One pool's count; `announced_at` is when the last change was told (the loop's time), `unannounced` whether one
    was not."""

    key: Key
    item: Item
    tasks: int | None = None
    error: SourceProblem | None = None
    announced_at: float = float("-inf")
    unannounced: bool = False


@dataclass(slots=True)
class _Round:
    """The pools of one place, read together by one task. `observed_at` is when it was last asked with success (Unix
    seconds).
    """

    endpoint: SourceEndpoint
    pools: dict[Key, _CountedPool] = field(default_factory=dict)
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    observed_at: float = 0.0
    failures: int = 0
    task: asyncio.Task[None] | None = None


class BacklogPoller:
    """The counts of all pools over one kind of server. `on_change(key)` is called when a count or an error changes.

    `exact` is what the signals are; `now` is Unix seconds.
    """

    def __init__(
        self,
        reader: BacklogReader,
        *,
        exact: bool,
        on_change: Callable[[Key], None],
        now: Callable[[], float],
        jitter: backoff.Jitter = random.random,
    ) -> None:
        self._reader = reader
        self._exact = exact
        self._on_change = on_change
        self._now = now
        self._jitter = jitter
        self._rounds: dict[SourceEndpoint, _Round] = {}
        self._endpoints: dict[Key, SourceEndpoint] = {}
        self._leaving: dict[SourceEndpoint, asyncio.Task[None]] = {}

    def order(self, key: Key, endpoint: SourceEndpoint | None, item: Item = "") -> None:
        """Count for the pool from now on, or with None no more. Cheap when nothing changed; raises nothing."""
        before = self._endpoints.get(key)
        if before is not None and before != endpoint:
            self._leave(key, before)
        if endpoint is None:
            return
        poll_round = self._rounds.get(endpoint)
        if poll_round is None:
            poll_round = self._rounds[endpoint] = _Round(endpoint)
        known = poll_round.pools.get(key)
        if known is None or known.item != item:
            poll_round.pools[key] = _CountedPool(key, item)
            self._endpoints[key] = endpoint
            poll_round.joined.set()
        if poll_round.task is None:
            poll_round.task = asyncio.get_running_loop().create_task(self._run(poll_round, self._leaving.get(endpoint)))

    def latest(self, key: Key) -> tuple[BacklogCount | None, SourceProblem | None]:
        """Return what waits for the pool as last counted, and why it cannot be counted now if so."""
        endpoint = self._endpoints.get(key)
        poll_round = None if endpoint is None else self._rounds[endpoint]
        pool = None if poll_round is None else poll_round.pools.get(key)
        if poll_round is None or pool is None:
            return None, None
        count = None if pool.tasks is None else BacklogCount(pool.tasks, self._exact, poll_round.observed_at)
        return count, pool.error

    def pause(self) -> None:
        """Count no more for any pool, because this process leads no more."""
        for key in tuple(self._endpoints):
            self.order(key, None)

    async def stop(self) -> None:
        """Count no more, and wait until every connection is closed."""
        self.pause()
        await asyncio.gather(*self._leaving.values(), return_exceptions=True)

    def _leave(self, key: Key, endpoint: SourceEndpoint) -> None:
        poll_round = self._rounds[endpoint]
        del poll_round.pools[key], self._endpoints[key]
        if poll_round.pools:
            return
        del self._rounds[endpoint]
        closing = asyncio.get_running_loop().create_task(self._close(poll_round))
        self._leaving[endpoint] = closing
        closing.add_done_callback(lambda done: self._left(endpoint, done))

    def _left(self, endpoint: SourceEndpoint, closing: asyncio.Task[None]) -> None:
        if self._leaving.get(endpoint) is closing:
            del self._leaving[endpoint]

    async def _close(self, poll_round: _Round) -> None:
        if poll_round.task is not None:
            poll_round.task.cancel()
            await asyncio.gather(poll_round.task, return_exceptions=True)
        await self._reader.close(poll_round.endpoint)

    async def _run(self, poll_round: _Round, former: asyncio.Task[None] | None) -> None:
        loop = asyncio.get_running_loop()
        if former is not None:
            # What the place's former pools had open is closed first, or it would be closed under these.
            await asyncio.wait((former,))
        await asyncio.sleep(GATHER_SECONDS)
        while True:
            poll_round.joined.clear()
            began = loop.time()
            wait = await self._round(poll_round)
            if wait:
                await asyncio.sleep(wait)
                continue
            interval = poll_round.endpoint.interval_seconds
            rest = max(interval - (loop.time() - began), interval * LEAST_REST)
            if any(pool.unannounced for pool in poll_round.pools.values()):
                # What has still to be told does not wait for a server that is rarely asked.
                rest = min(rest, TELL_SECONDS)
            await self._rest(poll_round, rest)

    async def _rest(self, poll_round: _Round, seconds: float) -> None:
        """Wait for the next round; a pool that joins a slow one is not kept waiting for it."""
        if seconds <= TELL_SECONDS:
            await self._reader.wait(poll_round.endpoint, seconds)
            return
        waits = {
            asyncio.ensure_future(self._reader.wait(poll_round.endpoint, seconds)),
            asyncio.ensure_future(poll_round.joined.wait()),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        await asyncio.sleep(GATHER_SECONDS)

    async def _round(self, poll_round: _Round) -> float:
        """Count once; returns the seconds to wait before the next try, 0 when it went well."""
        pools = list(poll_round.pools.values())
        asked_at = self._now()
        try:
            async with asyncio.timeout(ROUND_SECONDS):
                found = await self._reader.read(poll_round.endpoint, [pool.item for pool in pools])
            counted = list(zip(pools, found, strict=True))
        except SourceProblemError as problem:
            return self._failed(poll_round, pools, problem)
        except TimeoutError:
            silence = SourceProblemError("BackendUnreachable", f"no answer within {ROUND_SECONDS:.0f} s")
            return self._failed(poll_round, pools, silence)
        except Exception as error:
            log.exception("counting for %d pools failed unexpectedly", len(pools))
            return self._failed(poll_round, pools, SourceProblemError("BackendUnreachable", type(error).__name__))
        poll_round.observed_at = asked_at
        now = asyncio.get_running_loop().time()
        for pool, count in counted:
            if count != pool.tasks or pool.error is not None or pool.unannounced:
                self._learn(pool, count, now)
        if any(isinstance(count, int) for count in found):
            poll_round.failures = 0
            return 0.0
        # A server that refuses everybody one by one is asked less often, too.
        poll_round.failures += 1
        return self._pause_after(poll_round)

    def _learn(self, pool: _CountedPool, count: int | SourceProblemError, now: float) -> None:
        if isinstance(count, SourceProblemError):
            pool.tasks = None
            self._note_problem([pool], count)
            return
        first = pool.tasks is None or pool.error is not None
        pool.unannounced = pool.unannounced or first or count != pool.tasks
        pool.tasks, pool.error = count, None
        if pool.unannounced and (first or now - pool.announced_at >= TELL_SECONDS):
            self._changed(pool, now)

    def _failed(self, poll_round: _Round, pools: list[_CountedPool], problem: SourceProblemError) -> float:
        poll_round.failures += 1
        if problem.reason != "BackendUnreachable" or poll_round.failures >= TOLD_FAILURES:
            self._note_problem(pools, problem)
        for pool in pools:
            # Until the next success may be long.
            if pool.unannounced:
                self._changed(pool, asyncio.get_running_loop().time())
        return self._pause_after(poll_round)

    def _pause_after(self, poll_round: _Round) -> float:
        return backoff.capped(poll_round.failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS, self._jitter)

    def _note_problem(self, pools: Sequence[_CountedPool], problem: SourceProblemError) -> None:
        """Keep the error with the time it began; call back once a change."""
        now = asyncio.get_running_loop().time()
        for pool in pools:
            before = pool.error
            pool.error = problem.noted(before, self._now())
            if pool.error != before:
                self._changed(pool, now)

    def _changed(self, pool: _CountedPool, now: float) -> None:
        """Tell of a pool, unless it left while it was counted."""
        pool.announced_at, pool.unannounced = now, False
        endpoint = self._endpoints.get(pool.key)
        if endpoint is not None and self._rounds[endpoint].pools.get(pool.key) is pool:
            self._on_change(pool.key)
