"""Counts task lists of Amazon SWF: one paced round for all lists of an account and a region.

The service counts one list in a call and allows few calls a second, for all programs of the account. So the rounds
share a budget, and the lists that need the next count most are counted first (`task_list_pace`). Counting takes no
task, so it can be cancelled at any time.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from activity_operator import backoff
from activity_operator.api.conditions import Reason
from activity_operator.backlog import messages
from activity_operator.backlog.call_budget import CallBudget
from activity_operator.backlog.failures import Failures, RetryPolicy
from activity_operator.backlog.protocol import Key, PollTarget, SourceProblemError
from activity_operator.backlog.rounds import RoundPool, RoundReader, Rounds
from activity_operator.backlog.task_list_pace import ACTIVE_SECONDS, FASTEST_SECONDS, ListNeed, count_intervals
from activity_operator.core.backlog import EXACT_STALE_SECONDS
from activity_operator.core.decision import CountPace
from activity_operator.core.observation import BacklogCount, SourceProblem
from activity_worker.wire.swf import PendingCount

#: Amazon SWF refills a bucket of 200 counts by 6 a second, for all programs of an account in a region; so its page on
#: quotas (swf-dg-limits). The rest is left to people and to other programs.
COUNTS_PER_SECOND = 5.0
BURST_COUNTS = 25.0
#: Missed counts after which a count is stale.
STALE_COUNTS = 3.0
#: Most calls at a time, seconds until a call without an answer fails, and least seconds between two reads of a place.
CALLS_AT_ONCE = 10
CALL_SECONDS = 5.0
LEAST_WAIT_SECONDS = 0.02
#: Seconds that a round waits for more pools to join.
GATHER_SECONDS = 0.02
#: First and longest wait of a list after an error, and the calls without an answer, in a row, that its pool shows.
RETRY_FIRST_SECONDS = 1.0
RETRY_CAP_SECONDS = 60.0
UNREACHABLE_SHOWN = 3
#: First and longest wait of a place after throttled calls, and the throttled reads in a row that its pools show.
THROTTLED_FIRST_SECONDS = 1.0
THROTTLED_CAP_SECONDS = 15.0
THROTTLED_SHOWN = 3
#: How throttling changes the rate of a place: the factor after a throttled read, the share of the full rate that each
#: later second gives back, and the least rate in counts a second.
SLOWER = 0.5
FASTER_A_SECOND = 0.02
LEAST_RATE = 0.2
_NEVER = float("-inf")


class TaskListService(Protocol):
    """The service that counts task lists."""

    async def count(self, target: PollTarget) -> PendingCount:
        """Return how many tasks wait in the target's task list; raises SourceProblemError."""
        ...


@dataclass(frozen=True, slots=True)
class CountQuota:
    """What the operator may use of the quota of an account and a region, and the shortest interval of one list."""

    counts_per_second: float = COUNTS_PER_SECOND
    fastest_seconds: float = FASTEST_SECONDS


@dataclass(slots=True)
class _CountedList(RoundPool):
    """One pool's task list. Times are the event loop's, except `observed_at` (Unix seconds).

    `throttled`: its last call was, so its error may be over.
    """

    target: PollTarget = field(default_factory=lambda: PollTarget(""))
    pace: CountPace = CountPace.STEADY
    count: PendingCount | None = None
    observed_at: float = 0.0
    interval: float = 0.0
    asked: float = _NEVER
    changed: float = _NEVER
    retry_at: float = _NEVER
    throttled: bool = False
    failures: Failures = field(default_factory=Failures)

    def need(self, now: float) -> ListNeed:
        """Return what the list needs now."""
        return ListNeed(self.pace, now - self.changed < ACTIVE_SECONDS)


@dataclass(slots=True)
class _Quota:
    """The calls at one place, its present rate, and why all of its pools wait.

    `throttled` are the throttled reads in a row. `slowed_at` is the event loop's time at which the rate was right,
    `hurried_at` the one at which the end of one list's error made the others due.
    """

    budget: CallBudget
    pools: Sequence[_CountedList] = ()
    throttled: int = 0
    slowed_at: float = 0.0
    hurried_at: float = _NEVER
    problem: SourceProblem | None = None


class TaskListPoller(RoundReader[PollTarget, _CountedList]):
    """Counts the task lists of all pools; `on_change(key)` is called when a count or an error changes.

    `now` is Unix seconds.
    """

    def __init__(
        self,
        service: TaskListService,
        *,
        on_change: Callable[[Key], None],
        now: Callable[[], float],
        quota: CountQuota | None = None,
        jitter: backoff.Jitter = random.random,
    ) -> None:
        self._service = service
        self._now = now
        self._quota = quota or CountQuota()
        self._jitter = jitter
        self._retry = RetryPolicy(RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS, unreachable_shown=UNREACHABLE_SHOWN)
        self._quotas: dict[PollTarget, _Quota] = {}
        self._rounds = Rounds[PollTarget, _CountedList](
            self,
            gather_seconds=GATHER_SECONDS,
            retry=self._retry.of_place(THROTTLED_FIRST_SECONDS, THROTTLED_CAP_SECONDS),
            on_change=lambda pool: on_change(pool.key),
            now=now,
            jitter=jitter,
        )

    def order(self, key: Key, target: PollTarget | None, pace: CountPace = CountPace.STEADY) -> None:
        """Count the pool's task list from now on at this pace, or stop if `target` is None. Cheap without a change."""
        if target is None:
            self._rounds.leave(key)
            return
        found = self._rounds.find(key)
        if found is None or found[1].target != target:
            self._rounds.join(quota_of(target), _CountedList(key, target=target, pace=pace))
        elif found[1].pace is not pace:
            found[1].pace = pace
            if pace is not CountPace.SLOW:
                # Its next count may be due before the end of the present rest.
                self._rounds.join(*found)

    def latest(self, key: Key) -> tuple[BacklogCount | None, SourceProblem | None]:
        """Return the pool's last count, and why the last one failed; None for what does not exist."""
        found = self._rounds.find(key)
        if found is None:
            return None, None
        place, pool = found
        quota = self._quotas.get(place)
        problem, shared = pool.error, None if quota is None else quota.problem
        if problem is None or (pool.throttled and shared is not None):
            problem = shared
        if pool.count is None or quota is None:
            return None, problem
        # A place that is throttled counts less often than it should: its counts become stale as they would otherwise.
        usual = pool.interval * quota.budget.rate / self._quota.counts_per_second
        stale = max(EXACT_STALE_SECONDS, STALE_COUNTS * usual)
        count = BacklogCount(
            pool.count.count, True, pool.observed_at, stale_seconds=stale, truncated=pool.count.truncated
        )
        return count, problem

    def answered_at(self, key: Key) -> float:
        """Return when the pool's list was last counted, in Unix seconds, 0 if it never was."""
        found = self._rounds.find(key)
        return 0.0 if found is None or found[1].error is not None else found[1].observed_at

    def pause(self) -> None:
        """Stop counting for all pools, because this process is no longer the leader."""
        self._rounds.pause()

    async def stop(self) -> None:
        """Stop counting for all pools and wait until all rounds have ended."""
        await self._rounds.stop()

    def choose_pools(self, place: PollTarget, pools: Sequence[_CountedList]) -> Sequence[_CountedList]:
        """Return the lists that are counted now: those that are due, the longest overdue first, within the budget."""
        now = asyncio.get_running_loop().time()
        quota = self._quota_at(place, pools, now)
        due = self._due_times(quota, now)
        most = min(int(quota.budget.calls), CALLS_AT_ONCE)
        chosen = sorted((pool for pool in pools if due[pool.key] <= now), key=lambda pool: due[pool.key])[:most]
        quota.budget.calls -= len(chosen)
        for pool in chosen:
            pool.asked = now
        return chosen

    async def read(self, place: PollTarget, pools: Sequence[_CountedList]) -> bool:
        """Count each of these lists."""
        quota = self._quotas[place]
        answers = await asyncio.gather(*(self._count(pool) for pool in pools))
        throttled: SourceProblemError | None = None
        for pool, (asked_at, answer) in zip(pools, answers, strict=True):
            pool.throttled = not isinstance(answer, PendingCount) and answer.throttled
            if isinstance(answer, PendingCount):
                self._hurry(quota, pool)
                self._learn(pool, answer, asked_at)
            elif answer.throttled:
                throttled = answer
            else:
                self._failed(pool, answer)
        if throttled is not None:
            self._slow_down(quota, throttled)
            raise throttled
        if pools:
            self._speed_up(quota)
        return True

    def wait_seconds(self, place: PollTarget, pools: Sequence[_CountedList], took: float) -> float:
        """Return the seconds until the budget allows a call and a list is due."""
        del took
        now = asyncio.get_running_loop().time()
        quota = self._quota_at(place, pools, now)
        next_due = min(self._due_times(quota, now).values(), default=now)
        return max(quota.budget.wait_seconds(), next_due - now, LEAST_WAIT_SECONDS)

    async def close(self, place: PollTarget) -> None:
        """Keep the budget: the quota is still used up when pools come back. Forget it once it is full."""
        quota = self._quota_at(place, (), asyncio.get_running_loop().time())
        quota.problem, quota.throttled = None, 0
        if quota.budget.full:
            self._quotas.pop(place, None)

    async def _count(self, pool: _CountedList) -> tuple[float, PendingCount | SourceProblemError]:
        asked_at = self._now()
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return asked_at, await self._service.count(pool.target)
        except SourceProblemError as problem:
            return asked_at, problem
        except TimeoutError:
            where = messages.shown_place(pool.target)
            text = f"no answer from {where} to swf:CountPendingActivityTasks within {CALL_SECONDS:.0f} s"
            return asked_at, SourceProblemError(Reason.BACKEND_UNREACHABLE, text)

    def _learn(self, pool: _CountedList, count: PendingCount, asked_at: float) -> None:
        news = pool.count != count or pool.error is not None
        if pool.count is not None and pool.count != count:
            pool.changed = asyncio.get_running_loop().time()
        pool.count, pool.observed_at, pool.error, pool.retry_at = count, asked_at, None, _NEVER
        pool.failures.clear()
        if news:
            self._rounds.changed(pool)

    def _hurry(self, quota: _Quota, pool: _CountedList) -> None:
        """Make the other lists due whose error ended for this list: a right is often granted for all of them.

        At most once in `RETRY_CAP_SECONDS`, so that lists that stay refused get one call more in that time.
        """
        now = asyncio.get_running_loop().time()
        if pool.error is None or now - quota.hurried_at < RETRY_CAP_SECONDS:
            return
        quota.hurried_at = now
        for other in quota.pools:
            if other.error is not None and other.error.reason == pool.error.reason:
                other.retry_at = now

    def _failed(self, pool: _CountedList, problem: SourceProblemError) -> None:
        pool.failures.add(problem)
        pool.retry_at = asyncio.get_running_loop().time() + pool.failures.pause_seconds(self._retry, self._jitter)
        if pool.failures.shows(problem, self._retry):
            self._rounds.record_problem([pool], problem)

    def _slow_down(self, quota: _Quota, throttled: SourceProblemError) -> None:
        """Count less often after a throttled read; after a few of them all pools of the place show it."""
        quota.throttled += 1
        quota.slowed_at = asyncio.get_running_loop().time()
        quota.budget.calls = 0.0
        quota.budget.rate = max(quota.budget.rate * SLOWER, min(LEAST_RATE, self._quota.counts_per_second))
        if quota.throttled >= THROTTLED_SHOWN:
            self._show(quota, throttled.noted(quota.problem, self._now()))

    def _speed_up(self, quota: _Quota) -> None:
        """Give back a part of the rate after a read that was not throttled."""
        most, now = self._quota.counts_per_second, asyncio.get_running_loop().time()
        quota.budget.rate = min(most, quota.budget.rate + most * FASTER_A_SECOND * (now - quota.slowed_at))
        quota.throttled, quota.slowed_at = 0, now
        self._show(quota, None)

    def _show(self, quota: _Quota, problem: SourceProblem | None) -> None:
        if quota.problem == problem:
            return
        quota.problem = problem
        for pool in quota.pools:
            self._rounds.changed(pool)

    def _quota_at(self, place: PollTarget, pools: Sequence[_CountedList], now: float) -> _Quota:
        quota = self._quotas.get(place)
        if quota is None:
            quota = self._quotas[place] = _Quota(CallBudget(BURST_COUNTS, self._quota.counts_per_second))
        quota.pools = pools
        quota.budget.refill(now)
        return quota

    def _due_times(self, quota: _Quota, now: float) -> Mapping[Key, float]:
        """Return when each list is due, in the event loop's time, and keep its present interval."""
        needs = {pool.key: pool.need(now) for pool in quota.pools}
        intervals = count_intervals(needs.values(), quota.budget.rate, self._quota.fastest_seconds)
        due = {}
        for pool in quota.pools:
            pool.interval = intervals[needs[pool.key]]
            # Throttling makes intervals long; whether an error is over is asked at least once in its longest wait.
            interval = min(pool.interval, RETRY_CAP_SECONDS) if pool.failures else pool.interval
            due[pool.key] = max(pool.asked + interval, pool.retry_at)
        return due


def quota_of(target: PollTarget) -> PollTarget:
    """Return what is equal for all pools whose counts count against the same quota: account, region and endpoint.

    The account is that of the role; without a role it is the operator's own, which no field names.
    """
    return replace(messages.place_of(target), arn=messages.account_of(target.role_arn), role_arn="", external_id="")
