"""Reads the metrics of many activities about once a minute: one round for all pools of the same account.

A round reads the metrics of all pools with the same region, endpoint and role. They are kept until they are stale, and
`on_change` is called only if they changed. Reads take no task, so they can be cancelled at any time, unlike polls.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from activity_operator.backlog import backoff, messages, metric_data
from activity_operator.backlog.protocol import Key, MetricReader, PollTarget, SourceProblemError, TimeRange
from activity_operator.core.backlog_estimate import STALE_SECONDS
from activity_operator.core.observation import ActivityMetrics, MetricPeriod, SourceProblem

log = logging.getLogger(__name__)

#: Seconds from one round to the next.
ROUND_SECONDS = 60.0
#: Seconds that a round waits for more pools to join; also the minimum interval between two rounds.
GATHER_SECONDS = 2.0
#: First and longest wait after failed rounds, and after throttled rounds.
RETRY_FIRST_SECONDS = 5.0
RETRY_CAP_SECONDS = 60.0
THROTTLED_FIRST_SECONDS = 5.0
THROTTLED_CAP_SECONDS = 120.0
#: Consecutive throttled rounds after which the pools' conditions show it.
THROTTLED_TOLD = 5


@dataclass(slots=True)
class _MeteredPool:
    """One pool's metrics. `past` has the hours before `past_until`; `error` is why the last round failed."""

    key: Key
    target: PollTarget
    past: tuple[MetricPeriod, ...] = ()
    past_until: int = 0
    metrics: ActivityMetrics | None = None
    error: SourceProblem | None = None


@dataclass(slots=True)
class _MetricRound:
    """The pools of one place; one asyncio task reads their metrics together."""

    where: PollTarget
    pools: dict[Key, _MeteredPool] = field(default_factory=dict)
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    next_round: float = float("-inf")
    failures: int = 0
    throttled: int = 0
    task: asyncio.Task[None] | None = None


class MetricPoller:
    """Reads the metrics of all pools from one service; `on_change(key)` is called when metrics or errors change.

    `now` (slewed Unix seconds) measures the metrics' age; `wall` (the machine's Unix seconds) selects the minutes to
    read.
    """

    def __init__(
        self,
        service: MetricReader,
        *,
        on_change: Callable[[Key], None],
        now: Callable[[], float],
        wall: Callable[[], float] | None = None,
        jitter: backoff.Jitter = random.random,
    ) -> None:
        self._service = service
        self._on_change = on_change
        self._now = now
        self._wall = wall or now
        self._jitter = jitter
        self._rounds: dict[PollTarget, _MetricRound] = {}
        self._places: dict[Key, PollTarget] = {}

    def order(self, key: Key, target: PollTarget | None) -> None:
        """Start to read the pool's metrics, or stop if `target` is None. Cheap if nothing changed; raises nothing."""
        where = None if target is None else messages.place_of(target)
        before = self._places.get(key)
        if before is not None and before != where:
            self._leave(key, before)
        if target is None or where is None:
            return
        poll_round = self._rounds.get(where)
        if poll_round is None:
            poll_round = self._rounds[where] = _MetricRound(where)
        known = poll_round.pools.get(key)
        if known is None or known.target != target:
            poll_round.pools[key] = _MeteredPool(key, target)
            self._places[key] = where
            poll_round.joined.set()
        if poll_round.task is None:
            poll_round.task = asyncio.get_running_loop().create_task(self._run(poll_round))

    def latest(self, key: Key) -> tuple[ActivityMetrics | None, SourceProblem | None]:
        """Return the pool's last metrics, and why the last round failed; None for what does not exist."""
        where = self._places.get(key)
        pool = None if where is None else self._rounds[where].pools.get(key)
        return (None, None) if pool is None else (pool.metrics, pool.error)

    def pause(self) -> None:
        """Stop reading for all pools, because this process is no longer the leader."""
        for key in tuple(self._places):
            self.order(key, None)

    async def stop(self) -> None:
        """Stop reading for all pools and wait until all rounds have ended."""
        tasks = [poll_round.task for poll_round in self._rounds.values() if poll_round.task is not None]
        self.pause()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _leave(self, key: Key, where: PollTarget) -> None:
        poll_round = self._rounds[where]
        del poll_round.pools[key], self._places[key]
        if not poll_round.pools:
            del self._rounds[where]
            if poll_round.task is not None:
                poll_round.task.cancel()

    async def _run(self, poll_round: _MetricRound) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(GATHER_SECONDS)
            poll_round.joined.clear()
            due = loop.time() >= poll_round.next_round
            pools = [pool for pool in poll_round.pools.values() if due or pool.metrics is None]
            if due:
                poll_round.next_round = loop.time() + ROUND_SECONDS * (0.9 + 0.1 * self._jitter())
            wait = await self._round(poll_round, pools)
            if wait:
                poll_round.next_round = loop.time()
                await asyncio.sleep(wait)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout_at(poll_round.next_round):
                    await poll_round.joined.wait()

    async def _round(self, poll_round: _MetricRound, pools: list[_MeteredPool]) -> float:
        """Read once for these pools; return the seconds to wait before the next try, 0 after a success."""
        try:
            await self._read(poll_round.where, pools)
        except SourceProblemError as problem:
            return self._failed(poll_round, pools, problem)
        except Exception as error:
            log.exception("reading the counts of %d pools failed unexpectedly", len(pools))
            return self._failed(
                poll_round, pools, SourceProblemError("BackendUnreachable", f"counts: {type(error).__name__}")
            )
        poll_round.failures = poll_round.throttled = 0
        return 0.0

    def _failed(self, poll_round: _MetricRound, pools: list[_MeteredPool], problem: SourceProblemError) -> float:
        if problem.throttled:
            poll_round.throttled += 1
            if poll_round.throttled >= THROTTLED_TOLD:
                self._note_problem(pools, problem)
            first, cap = THROTTLED_FIRST_SECONDS, THROTTLED_CAP_SECONDS
            return GATHER_SECONDS + backoff.full_jitter(poll_round.throttled, first, cap, self._jitter)
        poll_round.failures, poll_round.throttled = poll_round.failures + 1, 0
        self._note_problem(pools, problem)
        return backoff.capped(poll_round.failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS, self._jitter)

    async def _read(self, where: PollTarget, pools: list[_MeteredPool]) -> None:
        """Read the hours of pools whose past is out of date, then the minutes of all these pools."""
        began, day = self._now(), self._wall()
        minutes, hours = metric_data.recent(day), metric_data.past(day)
        moved = [pool for pool in pools if pool.past_until != hours.end]
        for pool, found in await self._ask(where, moved, hours):
            if isinstance(found, SourceProblemError):
                self._note_problem([pool], found)
            else:
                pool.past, pool.past_until = found, hours.end
        for pool, found in await self._ask(where, pools, minutes):
            if isinstance(found, SourceProblemError):
                self._note_problem([pool], found)
            elif pool.past_until == hours.end:
                self._learn(pool, ActivityMetrics((*pool.past, *found), began))

    async def _ask(
        self, where: PollTarget, pools: list[_MeteredPool], span: TimeRange
    ) -> list[tuple[_MeteredPool, tuple[MetricPeriod, ...] | SourceProblemError]]:
        if not pools:
            return []
        arns = sorted({pool.target.arn for pool in pools})
        found = await self._service.read(where, arns, span)
        return [(pool, found[pool.target.arn]) for pool in pools]

    def _learn(self, pool: _MeteredPool, counts: ActivityMetrics) -> None:
        before, error = pool.metrics, pool.error
        pool.metrics, pool.error = counts, None
        fresh = before is not None and counts.observed_at - before.observed_at < STALE_SECONDS
        if not fresh or error is not None or before is None or before.periods != counts.periods:
            self._changed(pool)

    def _note_problem(self, pools: list[_MeteredPool], problem: SourceProblemError) -> None:
        """Store the error with the time at which it began; call `on_change` if it changed."""
        for pool in pools:
            before = pool.error
            pool.error = problem.noted(before, self._now())
            if pool.error != before:
                self._changed(pool)

    def _changed(self, pool: _MeteredPool) -> None:
        """Call `on_change` for the pool, unless the pool left the round during the read."""
        where = self._places.get(pool.key)
        if where is not None and self._rounds[where].pools.get(pool.key) is pool:
            self._on_change(pool.key)
