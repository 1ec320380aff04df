"""Reads the metrics of many activities about once a minute: one round for all pools of the same account.

A round reads the metrics of all pools with the same region, endpoint and role. They are kept until they are stale, and
`on_change` is called only if they changed. Reads take no task, so they can be cancelled at any time, unlike polls.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from activity_operator import backoff
from activity_operator.backlog import messages, metric_data
from activity_operator.backlog.failures import RetryPolicy
from activity_operator.backlog.protocol import Key, MetricReader, PollTarget, SourceProblemError, TimeRange
from activity_operator.backlog.rounds import RoundPool, RoundReader, Rounds
from activity_operator.core.backlog_estimate import STALE_SECONDS
from activity_operator.core.observation import ActivityMetrics, MetricPeriod, SourceProblem

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
class _MeteredPool(RoundPool):
    """One pool's metrics. `past` has the hours before `past_until`."""

    arn: str = ""
    past: tuple[MetricPeriod, ...] = ()
    past_until: int = 0
    metrics: ActivityMetrics | None = None


class MetricPoller(RoundReader[PollTarget, _MeteredPool]):
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
        self._now = now
        self._wall = wall or now
        self._jitter = jitter
        #: The event loop's time at which all pools of a place are read again.
        self._due: dict[PollTarget, float] = {}
        self._rounds = Rounds[PollTarget, _MeteredPool](
            self,
            gather_seconds=GATHER_SECONDS,
            retry=RetryPolicy(
                RETRY_FIRST_SECONDS,
                RETRY_CAP_SECONDS,
                throttled_first_seconds=THROTTLED_FIRST_SECONDS,
                throttled_cap_seconds=THROTTLED_CAP_SECONDS,
                throttled_shown=THROTTLED_TOLD,
                least_seconds=GATHER_SECONDS,
            ),
            on_change=lambda pool: on_change(pool.key),
            now=now,
            jitter=jitter,
        )

    def order(self, key: Key, target: PollTarget | None) -> None:
        """Start to read the pool's metrics, or stop if `target` is None. Cheap if nothing changed; raises nothing."""
        if target is None:
            self._rounds.leave(key)
            return
        place = messages.place_of(target)
        found = self._rounds.find(key)
        if found is None or (found[0], found[1].arn) != (place, target.arn):
            self._rounds.join(place, _MeteredPool(key, arn=target.arn))

    def latest(self, key: Key) -> tuple[ActivityMetrics | None, SourceProblem | None]:
        """Return the pool's last metrics, and why the last round failed; None for what does not exist."""
        found = self._rounds.find(key)
        return (None, None) if found is None else (found[1].metrics, found[1].error)

    def pause(self) -> None:
        """Stop reading for all pools, because this process is no longer the leader."""
        self._rounds.pause()

    async def stop(self) -> None:
        """Stop reading for all pools and wait until all rounds have ended."""
        await self._rounds.stop()

    def choose_pools(self, place: PollTarget, pools: Sequence[_MeteredPool]) -> Sequence[_MeteredPool]:
        """Return all pools once a minute, and in between those without metrics."""
        loop_time = asyncio.get_running_loop().time()
        if loop_time < self._due.get(place, float("-inf")):
            return [pool for pool in pools if pool.metrics is None]
        self._due[place] = loop_time + ROUND_SECONDS * (0.9 + 0.1 * self._jitter())
        return pools

    async def read(self, place: PollTarget, pools: Sequence[_MeteredPool]) -> bool:
        """Read the hours of pools whose past is out of date, then the minutes of all these pools."""
        began, day = self._now(), self._wall()
        minutes, hours = metric_data.recent(day), metric_data.past(day)
        moved = [pool for pool in pools if pool.past_until != hours.end]
        for pool, found in await self._ask(place, moved, hours):
            if isinstance(found, SourceProblemError):
                self._rounds.record_problem([pool], found)
            else:
                pool.past, pool.past_until = found, hours.end
        for pool, found in await self._ask(place, pools, minutes):
            if isinstance(found, SourceProblemError):
                self._rounds.record_problem([pool], found)
            elif pool.past_until == hours.end:
                self._learn(pool, ActivityMetrics((*pool.past, *found), began))
        return True

    def failed(self, place: PollTarget, pools: Sequence[_MeteredPool]) -> None:
        """Read all pools of the place after the next wait."""
        del pools
        self._due[place] = float("-inf")

    def wait_seconds(self, place: PollTarget, pools: Sequence[_MeteredPool], took: float) -> float:
        """Return the rest of the minute."""
        del pools, took
        return max(self._due[place] - asyncio.get_running_loop().time(), 0.0)

    async def close(self, place: PollTarget) -> None:
        """Forget when the place was due."""
        self._due.pop(place, None)

    async def _ask(
        self, place: PollTarget, pools: Sequence[_MeteredPool], span: TimeRange
    ) -> list[tuple[_MeteredPool, tuple[MetricPeriod, ...] | SourceProblemError]]:
        if not pools:
            return []
        found = await self._service.read(place, sorted({pool.arn for pool in pools}), span)
        return [(pool, found[pool.arn]) for pool in pools]

    def _learn(self, pool: _MeteredPool, counts: ActivityMetrics) -> None:
        before, error = pool.metrics, pool.error
        pool.metrics, pool.error = counts, None
        fresh = before is not None and counts.observed_at - before.observed_at < STALE_SECONDS
        if not fresh or error is not None or before is None or before.periods != counts.periods:
            self._rounds.changed(pool)
