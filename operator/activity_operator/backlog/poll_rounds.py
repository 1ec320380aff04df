"""Reads the backlog of sources that can report it: one round per server, for all of its pools together.

A round's counts are kept, and `on_change` is called only if a count changed. Reading takes no task, so it can be
cancelled at any time. Rounds that fail back off, and the pools' conditions show the error after repeated failures.
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

#: What is counted on a server: keys of lists, a query, or names of tasks.
Item = str

#: Minimum seconds between two change notifications per pool. The first change after that time is announced at once.
TELL_SECONDS = 0.25
#: Seconds that the first round waits for more pools to join.
GATHER_SECONDS = 0.02
#: Minimum wait between two rounds as a share of the interval, so that a slow server gets a pause.
LEAST_REST = 0.25
#: First and longest wait after failed rounds, and the consecutive failures after which the pools' conditions show it.
RETRY_FIRST_SECONDS = 0.25
RETRY_CAP_SECONDS = 15.0
TOLD_FAILURES = 3
#: Time-out of a round in seconds.
ROUND_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class SourceEndpoint:
    """A server and the interval of its rounds. The URL and the token may be secret, so the repr omits them.

    `source_hosts` are globs of the hosts (HOST:PORT) to which the server may lead the operator.
    """

    url: str = field(repr=False)
    interval_seconds: float
    token: str = field(default="", repr=False)
    source_hosts: tuple[str, ...] = ("*",)


class BacklogReader(Protocol):
    """Reads from one kind of server, and reports its calls to `observed`."""

    observed: CallObserver

    async def read(self, endpoint: SourceEndpoint, items: Sequence[Item]) -> Sequence[int | SourceProblemError]:
        """Return for each item the number of waiting tasks, or why it is unknown.

        Raises SourceProblemError if the server as a whole cannot be used.
        """
        ...

    async def wait(self, endpoint: SourceEndpoint, seconds: float) -> None:
        """Wait `seconds` until the next round, or less if the server announces a task."""
        ...

    async def close(self, endpoint: SourceEndpoint) -> None:
        """Close the connections to the server; raises nothing."""
        ...


@dataclass(slots=True)
class _CountedPool:
    """One pool's count. `announced_at` is the event loop's time of the last change notification; `unannounced` is True
    while a change still waits for its notification.
    """

    key: Key
    item: Item
    tasks: int | None = None
    error: SourceProblem | None = None
    announced_at: float = float("-inf")
    unannounced: bool = False


@dataclass(slots=True)
class _Round:
    """The pools of one server; one asyncio task reads their counts together.

    `observed_at` is when the last successful read began (Unix seconds).
    """

    endpoint: SourceEndpoint
    pools: dict[Key, _CountedPool] = field(default_factory=dict)
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    observed_at: float = 0.0
    failures: int = 0
    task: asyncio.Task[None] | None = None


class BacklogPoller:
    """Reads the counts of all pools from one kind of server; `on_change(key)` is called when counts or errors change.

    `exact` says whether the counts are exact or lower bounds; `now` is Unix seconds.
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
        """Start to count for the pool, or stop if `endpoint` is None. Cheap if nothing changed; raises nothing."""
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
        """Return the pool's last count, and why the last round failed; None for what does not exist."""
        endpoint = self._endpoints.get(key)
        poll_round = None if endpoint is None else self._rounds[endpoint]
        pool = None if poll_round is None else poll_round.pools.get(key)
        if poll_round is None or pool is None:
            return None, None
        count = None if pool.tasks is None else BacklogCount(pool.tasks, self._exact, poll_round.observed_at)
        return count, pool.error

    def pause(self) -> None:
        """Stop counting for all pools, because this process is no longer the leader."""
        for key in tuple(self._endpoints):
            self.order(key, None)

    async def stop(self) -> None:
        """Stop counting for all pools and wait until every connection is closed."""
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
            # The former round closes the server's connections first; later it would close those of this round.
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
                # A change that still waits for its notification must not wait for a long interval.
                rest = min(rest, TELL_SECONDS)
            await self._rest(poll_round, rest)

    async def _rest(self, poll_round: _Round, seconds: float) -> None:
        """Wait for the next round, or until a pool joins: a new pool does not wait for a long interval."""
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
        """Count once; return the seconds to wait before the next try, 0 after a success."""
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
        # A server that refuses every single item also causes a back-off.
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
            # The next successful round may be far away, so announce the change now.
            if pool.unannounced:
                self._changed(pool, asyncio.get_running_loop().time())
        return self._pause_after(poll_round)

    def _pause_after(self, poll_round: _Round) -> float:
        return backoff.capped(poll_round.failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS, self._jitter)

    def _note_problem(self, pools: Sequence[_CountedPool], problem: SourceProblemError) -> None:
        """Store the error with the time at which it began; call `on_change` if it changed."""
        now = asyncio.get_running_loop().time()
        for pool in pools:
            before = pool.error
            pool.error = problem.noted(before, self._now())
            if pool.error != before:
                self._changed(pool, now)

    def _changed(self, pool: _CountedPool, now: float) -> None:
        """Call `on_change` for the pool, unless the pool left the round during the read."""
        pool.announced_at, pool.unannounced = now, False
        endpoint = self._endpoints.get(pool.key)
        if endpoint is not None and self._rounds[endpoint].pools.get(pool.key) is pool:
            self._on_change(pool.key)
