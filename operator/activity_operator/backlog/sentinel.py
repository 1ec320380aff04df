"""The sentinel: while a pool has no ready worker the operator polls for it, and what a poll brings is proof of demand.

A poll is never aborted: an aborted one can lose a task that the service has already handed over. So lowering an order
opens no more polls and waits for the open ones, and so does `stop`.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from activity_operator.backlog import backoff, sentinel_polls
from activity_operator.backlog.protocol import Key, LeaseCounts, PollTarget, SourceProblemError, TaskService
from activity_operator.core.decision import SentinelOrder
from activity_operator.core.observation import SourceFacts, SourceProblem
from activity_worker.contract import LeasedTask

log = logging.getLogger(__name__)

#: Waits between polls that failed, and between polls that were throttled.
RETRY_FIRST_SECONDS = 1.0
RETRY_CAP_SECONDS = 60.0
THROTTLED_FIRST_SECONDS = 1.0
THROTTLED_CAP_SECONDS = 30.0
#: Throttled polls in a row from which the pool says so: fewer are the service's everyday way of asking for patience.
THROTTLED_TOLD = 5
#: Seconds that open polls have at the end: the service holds one for 60 s.
STOP_SECONDS = 75.0

#: Told of a task the moment a poll brought it: pool, its UID when the poll was opened, target, task. Must not fail.
OnTask = Callable[[Key, str, PollTarget, LeasedTask], None]


@dataclass(slots=True)
class _PoolPolls:
    """One pool's polls at one target, and how they fare. Times are the loop's, except `heard_at` (Unix seconds)."""

    key: Key
    pool_uid: str
    target: PollTarget
    order: SentinelOrder
    polls: sentinel_polls.PollState = field(default_factory=sentinel_polls.PollState)
    failures: int = 0
    throttled: int = 0
    not_before: float = float("-inf")
    error: SourceProblem | None = None
    heard_at: float = 0.0
    timer: asyncio.TimerHandle | None = None


class Sentinels:
    """The polls of all pools over one task service.

    `holdings(key)` says what leases the pool has; `on_task` is given what polls bring, before anything else happens;
    `on_change(key)` is called when the pool's error comes, changes or goes. `now` is Unix seconds.
    """

    def __init__(
        self,
        service: TaskService,
        *,
        holdings: Callable[[Key], LeaseCounts],
        on_task: OnTask,
        on_change: Callable[[Key], None],
        now: Callable[[], float],
        jitter: backoff.Jitter = random.random,
    ) -> None:
        self._service = service
        self._holdings = holdings
        self._on_task = on_task
        self._on_change = on_change
        self._now = now
        self._jitter = jitter
        self._pools: dict[Key, _PoolPolls] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    def order(self, key: Key, order: SentinelOrder, target: PollTarget, pool_uid: str = "") -> None:
        """Keep so many polls open for the pool from now on. Cheap when nothing changed; raises nothing."""
        pool = self._pools.get(key)
        if pool is None:
            if not order.polls:
                return
            pool = self._pools[key] = _PoolPolls(key, pool_uid, target, order)
        elif (pool.target, pool.pool_uid) != (target, pool_uid):
            pool = self._retarget(pool, target, pool_uid)
        pool.order = order
        self._fill(pool)

    def forget(self, key: Key) -> None:
        """Open no more polls for a pool that is gone; what its open ones bring is still handed on."""
        pool = self._pools.pop(key, None)
        if pool is not None:
            pool.order = SentinelOrder()
            self._disarm(pool)

    def leases_changed(self, key: Key) -> None:
        """Look again whether there is room for another poll, because a lease was claimed or is over."""
        pool = self._pools.get(key)
        if pool is not None:
            self._fill(pool)

    def facts(self, key: Key) -> SourceFacts:
        """Return what the operator itself knows of the pool's source; a task proves demand before it is recorded."""
        holdings = self._holdings(key)
        held = holdings.unrecorded + holdings.held
        pool = self._pools.get(key)
        if pool is None:
            return SourceFacts(held=held, claimed=holdings.claimed)
        return SourceFacts(
            open_polls=pool.polls.open,
            held=held,
            claimed=holdings.claimed,
            observed_at=pool.heard_at,
            error=pool.error,
        )

    def pause(self) -> None:
        """Open no more polls for any pool, because this process leads no more; open ones go on."""
        for key in tuple(self._pools):
            self.forget(key)

    async def stop(self, timeout_seconds: float = STOP_SECONDS) -> int:
        """Open no more polls and wait for the open ones; returns how many are still open after `timeout_seconds`."""
        self._stopping = True
        self.pause()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_seconds)
        return len(self._tasks)

    def _retarget(self, pool: _PoolPolls, target: PollTarget, pool_uid: str) -> _PoolPolls:
        """Leave the old target's polls to themselves and begin anew at the new one."""
        self._disarm(pool)
        pool.order = SentinelOrder()
        fresh = _PoolPolls(pool.key, pool_uid, target, SentinelOrder())
        self._pools[pool.key] = fresh
        if pool.error is not None:
            self._on_change(pool.key)
        return fresh

    def _fill(self, pool: _PoolPolls) -> None:
        """Open the polls that may be open now, and come back when the next one may."""
        self._disarm(pool)
        if not pool.order.polls:
            self._rest(pool)
            return
        loop = asyncio.get_running_loop()
        while not self._stopping and self._may_open(pool):
            now = loop.time()
            wait = max(pool.not_before - now, sentinel_polls.stagger_seconds(pool.order, pool.polls, now))
            if wait > 0:
                pool.timer = loop.call_later(wait, self._fill, pool)
                return
            pool.polls = replace(pool.polls, open=pool.polls.open + 1, last_opened=now)
            task = loop.create_task(self._poll(pool))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _rest(self, pool: _PoolPolls) -> None:
        """Drop what is known of a source that is not asked any more: an old error is no news."""
        if pool.polls.open or self._pools.get(pool.key) is not pool:
            return
        del self._pools[pool.key]
        if pool.error is not None:
            self._on_change(pool.key)

    def _may_open(self, pool: _PoolPolls) -> bool:
        if (pool.failures or pool.throttled) and pool.polls.open:
            return False
        return sentinel_polls.may_open(pool.order, self._holdings(pool.key).total, pool.polls) > 0

    def _disarm(self, pool: _PoolPolls) -> None:
        if pool.timer is not None:
            pool.timer.cancel()
            pool.timer = None

    async def _poll(self, pool: _PoolPolls) -> None:
        loop = asyncio.get_running_loop()
        opened = loop.time()
        try:
            task = await self._service.poll(pool.target)
            if task is not None:
                self._on_task(pool.key, pool.pool_uid, pool.target, task)
            self._succeeded(pool, empty=task is None, took=loop.time() - opened)
        except SourceProblemError as problem:
            self._failed(pool, problem)
        except Exception as error:
            log.exception("a poll for %s/%s failed unexpectedly", *pool.key)
            self._failed(pool, SourceProblemError("BackendUnreachable", f"a poll failed: {type(error).__name__}"))
        finally:
            pool.polls = replace(pool.polls, open=pool.polls.open - 1)
        self._fill(pool)

    def _succeeded(self, pool: _PoolPolls, *, empty: bool, took: float) -> None:
        pool.failures = pool.throttled = 0
        pool.heard_at = self._now()
        pool.not_before = float("-inf")
        if empty:
            cycle = max(took, sentinel_polls.LEAST_CYCLE_SECONDS)
            pool.polls = replace(pool.polls, hold_seconds=cycle)
            pool.not_before = asyncio.get_running_loop().time() + cycle - took
        self._note_problem(pool, None)

    def _failed(self, pool: _PoolPolls, problem: SourceProblemError) -> None:
        if problem.throttled:
            pool.throttled += 1
            step = pool.throttled
            wait = backoff.full_jitter(step, THROTTLED_FIRST_SECONDS, THROTTLED_CAP_SECONDS, self._jitter)
        else:
            pool.failures += 1
            pool.throttled = 0
            wait = backoff.capped(pool.failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS, self._jitter)
        pool.not_before = asyncio.get_running_loop().time() + wait
        if not problem.throttled or pool.throttled >= THROTTLED_TOLD:
            self._note_problem(pool, problem)

    def _note_problem(self, pool: _PoolPolls, problem: SourceProblemError | None) -> None:
        """Keep the error, with the time it began; call back once a change. A forgotten pool's is nobody's."""
        before = pool.error
        pool.error = None if problem is None else problem.noted(before, self._now())
        if pool.error != before and self._pools.get(pool.key) is pool:
            self._on_change(pool.key)
