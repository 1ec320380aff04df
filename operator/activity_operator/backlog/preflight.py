"""The preflight: asks whether a pool's activity exists and the operator may use it, in every activation mode.

For a task list of Amazon SWF it asks for the domain, because a task list exists as soon as it is named.

Polls answer the same question, so a pool whose polls were answered within the last hour is not asked for. In mode
CloudWatch and None the operator does not poll, and while workers work it does not poll in mode Sentinel either; then an
activity that was deleted is found here. The question takes no task, so it can be cancelled at any time.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from activity_operator import backoff
from activity_operator.backlog import messages
from activity_operator.backlog.call_budget import CallBudget
from activity_operator.backlog.failures import Failures, RetryPolicy
from activity_operator.backlog.protocol import Key, PollTarget, SourceProblemError
from activity_operator.backlog.rounds import RoundPool, RoundReader, Rounds
from activity_operator.core.observation import SourceProblem

#: Seconds without an answered poll after which a pool's activity is asked for again. A deleted activity is rare, and a
#: worker's polls find it within a minute; only a pool at zero without polls waits as long.
AGAIN_SECONDS = 3600.0
#: First and longest wait after a problem, so that a correction is found soon.
RETRY_FIRST_SECONDS = 15.0
RETRY_CAP_SECONDS = 300.0
#: Calls without an answer, in a row, from which the pool shows it.
UNREACHABLE_SHOWN = 3
#: Step Functions allows a bucket of 200 calls of DescribeActivity in an account and a region, refilled by 1 a second,
#: and Amazon SWF one of 200 calls of DescribeDomain, refilled by 6; people and other tools use it, too. 5,000 pools
#: that start together are asked for within three hours, new ones first.
BURST_CALLS = 20
CALLS_PER_SECOND = 0.5
#: Minimum seconds between two calls at one place, and seconds that a round waits for more pools to join.
LEAST_WAIT_SECONDS = 0.05
GATHER_SECONDS = 0.05
#: First and longest wait after throttled calls.
THROTTLED_FIRST_SECONDS = 5.0
THROTTLED_CAP_SECONDS = 120.0
_NEVER = float("-inf")


class ActivityService(Protocol):
    """The service that knows activities, and the one that knows domains."""

    async def describe(self, target: PollTarget) -> None:
        """Return if the activity exists and the operator may use it; else raise SourceProblemError."""
        ...


class ActivityServices:
    """Asks Amazon SWF for a target with a domain, and Step Functions for another one."""

    def __init__(self, stepfunctions: ActivityService, swf: ActivityService) -> None:
        self._stepfunctions = stepfunctions
        self._swf = swf

    async def describe(self, target: PollTarget) -> None:
        """Return if the activity or the domain exists and the operator may use it; else raise SourceProblemError."""
        await (self._swf if target.domain else self._stepfunctions).describe(target)


@dataclass(slots=True)
class _CheckedPool(RoundPool):
    """One pool's activity. `due` and `asked` are the event loop's times of the next and the last call."""

    target: PollTarget = field(default_factory=lambda: PollTarget(""))
    due: float = _NEVER
    asked: float = _NEVER
    failures: Failures = field(default_factory=Failures)


class ActivityPreflight(RoundReader[PollTarget, _CheckedPool]):
    """Asks for the activities of all pools, one call after the other in each account and region.

    `polled_at(key)` is when a poll of the operator was last answered, in Unix seconds (0: never). `on_change(key)` is
    called when a pool's problem appears, changes or disappears. `now` is Unix seconds.
    """

    def __init__(
        self,
        service: ActivityService,
        *,
        polled_at: Callable[[Key], float],
        on_change: Callable[[Key], None],
        now: Callable[[], float],
        jitter: backoff.Jitter = random.random,
    ) -> None:
        self._service = service
        self._polled_at = polled_at
        self._now = now
        self._jitter = jitter
        self._retry = RetryPolicy(RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS, unreachable_shown=UNREACHABLE_SHOWN)
        self._budgets: dict[PollTarget, CallBudget] = {}
        self._rounds = Rounds[PollTarget, _CheckedPool](
            self,
            gather_seconds=GATHER_SECONDS,
            retry=self._retry.of_place(THROTTLED_FIRST_SECONDS, THROTTLED_CAP_SECONDS),
            on_change=lambda pool: on_change(pool.key),
            now=now,
            jitter=jitter,
        )

    def order(self, key: Key, target: PollTarget | None) -> None:
        """Ask for the pool's activity from now on, or stop if `target` is None. Cheap if nothing changed."""
        if target is None:
            self._rounds.leave(key)
            return
        found = self._rounds.find(key)
        if found is None or found[1].target != target:
            self._rounds.join(_quota_of(target), _CheckedPool(key, target=target))

    def problem(self, key: Key) -> SourceProblem | None:
        """Return why the pool's activity cannot be used, None if it can or is not known yet."""
        found = self._rounds.find(key)
        return None if found is None else found[1].error

    def pause(self) -> None:
        """Ask for no pool any more, because this process is no longer the leader."""
        self._rounds.pause()

    async def stop(self) -> None:
        """Ask for no pool any more and wait until all rounds have ended."""
        await self._rounds.stop()

    def choose_pools(self, place: PollTarget, pools: Sequence[_CheckedPool]) -> Sequence[_CheckedPool]:
        """Return the pool that is asked for now: the newest one that never was, else the one that waits longest."""
        budget = self._budget(place)
        if budget.calls < 1.0:
            return ()
        pool = next(self._due(pools), None)
        if pool is None:
            return ()
        budget.calls -= 1.0
        return (pool,)

    async def read(self, place: PollTarget, pools: Sequence[_CheckedPool]) -> bool:
        """Ask for the activity of each of these pools."""
        del place
        for pool in pools:
            try:
                await self._service.describe(pool.target)
            except SourceProblemError as problem:
                self._failed(pool, problem)
            else:
                self._succeeded(pool)
        return True

    def wait_seconds(self, place: PollTarget, pools: Sequence[_CheckedPool], took: float) -> float:
        """Return the seconds until the budget allows a call and a pool is due."""
        del took
        now = asyncio.get_running_loop().time()
        next_due = min((pool.due for pool in pools), default=now)
        return max(self._budget(place).wait_seconds(), next_due - now, LEAST_WAIT_SECONDS)

    async def close(self, place: PollTarget) -> None:
        """Keep the budget: the quota is still used up when pools come back. Forget it once it is full."""
        if self._budget(place).full:
            self._budgets.pop(place, None)

    def _budget(self, place: PollTarget) -> CallBudget:
        budget = self._budgets.setdefault(place, CallBudget(BURST_CALLS, CALLS_PER_SECOND))
        budget.refill(asyncio.get_running_loop().time())
        return budget

    def _due(self, pools: Sequence[_CheckedPool]) -> Iterator[_CheckedPool]:
        """Yield the pools that are due, most urgent first; put off those whose polls were answered lately."""
        now = asyncio.get_running_loop().time()
        unasked = [pool for pool in reversed(pools) if pool.asked == _NEVER and pool.due <= now]
        asked = sorted((pool for pool in pools if pool.asked != _NEVER and pool.due <= now), key=lambda pool: pool.due)
        for pool in (*unasked, *asked):
            age = self._now() - self._polled_at(pool.key)
            if age >= AGAIN_SECONDS:
                yield pool
                continue
            pool.due = now + AGAIN_SECONDS - age
            self._clear(pool)

    def _succeeded(self, pool: _CheckedPool) -> None:
        now = asyncio.get_running_loop().time()
        pool.asked, pool.due = now, now + AGAIN_SECONDS * (0.9 + 0.1 * self._jitter())
        self._clear(pool)

    def _clear(self, pool: _CheckedPool) -> None:
        pool.failures.clear()
        if pool.error is not None:
            pool.error = None
            self._rounds.changed(pool)

    def _failed(self, pool: _CheckedPool, problem: SourceProblemError) -> None:
        if problem.throttled:
            # It says nothing about this pool. The quota is that of the whole place, so the round backs off.
            raise problem
        pool.failures.add(problem)
        now = asyncio.get_running_loop().time()
        pool.asked, pool.due = now, now + pool.failures.pause_seconds(self._retry, self._jitter)
        if pool.failures.shows(problem, self._retry):
            self._rounds.record_problem([pool], problem)


def _quota_of(target: PollTarget) -> PollTarget:
    """Return what is equal for all pools whose calls count against the same quota: account, region and endpoint."""
    return replace(messages.place_of(target), arn=messages.account_of(target.arn), role_arn="", external_id="")
