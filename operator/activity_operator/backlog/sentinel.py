"""The sentinel: the operator polls for a pool without ready workers, and a task that a poll returns proves demand.

An aborted poll can lose a task that the service has already handed over, so no poll is ever aborted. A lower order and
`stop` open no more polls and let the open polls end by themselves.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from activity_operator import backoff
from activity_operator.backlog import sentinel_polls
from activity_operator.backlog.failures import Failures, RetryPolicy
from activity_operator.backlog.lease_budget import LeaseBudget, budget_message, pool_limit
from activity_operator.backlog.protocol import (
    Key,
    LeaseCounts,
    LeaseTotals,
    PollTarget,
    SourceProblemError,
    TaskService,
)
from activity_operator.core.decision import SentinelOrder
from activity_operator.core.observation import SourceFacts, SourceProblem
from activity_worker.contract import LeasedTask

log = logging.getLogger(__name__)

#: First and longest wait after failed polls, and after throttled polls.
RETRY_FIRST_SECONDS = 1.0
RETRY_CAP_SECONDS = 60.0
THROTTLED_FIRST_SECONDS = 1.0
THROTTLED_CAP_SECONDS = 30.0
#: Consecutive throttled polls after which the pool's condition shows it; fewer are normal operation.
THROTTLED_TOLD = 5
#: Seconds after which a pool that the budget stopped looks for room again, if no lease has changed.
WITHHELD_SECONDS = 5.0
#: Seconds that `stop` waits for open polls; the service holds a poll for 60 s.
STOP_SECONDS = 75.0

#: The budget of leases for all pools, unless the settings say otherwise.
DEFAULT_BUDGET = LeaseBudget()

#: Callback for the task of a poll: pool, the pool's UID when the poll was opened, target, task. Must not raise.
OnTask = Callable[[Key, str, PollTarget, LeasedTask], None]


@dataclass(slots=True)
class _PoolPolls:
    """One pool's polls at one target. Times are the event loop's, except `heard_at`: the last answer, Unix seconds."""

    key: Key
    pool_uid: str
    target: PollTarget
    order: SentinelOrder
    polls: sentinel_polls.PollState = field(default_factory=sentinel_polls.PollState)
    failures: Failures = field(default_factory=Failures)
    not_before: float = float("-inf")
    error: SourceProblem | None = None
    heard_at: float = 0.0
    timer: asyncio.TimerHandle | None = None
    #: The last answered poll brought a task, so more tasks may wait.
    tasks_wait: bool = False
    #: The budget stops this pool's polls while more tasks may wait.
    withheld: bool = False


class Sentinels:
    """Opens the polls of all pools at one task service.

    `holdings(key)` returns the pool's lease counts, `totals` those of all pools; `budget` bounds the latter. `on_task`
    gets the task of a poll before anything else happens. `on_change(key)` is called when the pool's error appears,
    changes or disappears, when the budget begins or ceases to withhold tasks from it, and when the last open poll ended
    without a task. `now` is Unix seconds.
    """

    def __init__(
        self,
        service: TaskService,
        *,
        holdings: Callable[[Key], LeaseCounts],
        on_task: OnTask,
        on_change: Callable[[Key], None],
        now: Callable[[], float],
        totals: Callable[[], LeaseTotals] = LeaseTotals,
        budget: LeaseBudget = DEFAULT_BUDGET,
        jitter: backoff.Jitter = random.random,
    ) -> None:
        self._service = service
        self._holdings = holdings
        self._on_task = on_task
        self._on_change = on_change
        self._now = now
        self._jitter = jitter
        self._retry = RetryPolicy(
            RETRY_FIRST_SECONDS,
            RETRY_CAP_SECONDS,
            throttled_first_seconds=THROTTLED_FIRST_SECONDS,
            throttled_cap_seconds=THROTTLED_CAP_SECONDS,
            throttled_shown=THROTTLED_TOLD,
        )
        self._totals = totals
        self._budget = budget
        self._pools: dict[Key, _PoolPolls] = {}
        #: Pools that may open a poll when the budget has room, longest wait first.
        self._waiting: dict[Key, None] = {}
        #: Open polls beyond those at rest, of all pools.
        self._burst_polls = 0
        self._wake_up: asyncio.Handle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    def order(self, key: Key, order: SentinelOrder, target: PollTarget, pool_uid: str = "") -> None:
        """Keep `order.polls` polls open for the pool from now on. Cheap if nothing changed; raises nothing."""
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
        """Open no more polls for the pool; the tasks of its open polls still go to `on_task`."""
        pool = self._pools.pop(key, None)
        if pool is not None:
            pool.order = SentinelOrder()
            self._disarm(pool)
            self._waiting.pop(key, None)

    def leases_changed(self, key: Key) -> None:
        """Open another poll if a changed lease left room for it, for this pool or for one that the budget stopped."""
        pool = self._pools.get(key)
        if pool is not None:
            self._fill(pool)
        if self._waiting and self._wake_up is None:
            self._wake_up = asyncio.get_running_loop().call_soon(self._fill_waiting)

    def facts(self, key: Key) -> SourceFacts:
        """Return the facts that the polls and leases give about the pool's source; unrecorded leases count as held."""
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
            oldest_poll_at=self._opened_at(pool, 0),
            newest_poll_at=self._opened_at(pool, -1),
            at_once=pool.polls.at_once,
            error=pool.error,
            poll_error=pool.error,
            withheld=budget_message(self._budget) if pool.withheld else "",
        )

    def _opened_at(self, pool: _PoolPolls, number: int) -> float:
        """Return when an open poll was opened, in Unix seconds, 0 without one. `number` counts from the oldest one."""
        if not pool.polls.opened:
            return 0.0
        return self._now() - (asyncio.get_running_loop().time() - pool.polls.opened[number])

    def pause(self) -> None:
        """Open no more polls for any pool, because this process is no longer the leader; open polls go on."""
        for key in tuple(self._pools):
            self.forget(key)

    async def stop(self, timeout_seconds: float = STOP_SECONDS) -> int:
        """Open no more polls and wait for the open ones; return how many are still open after `timeout_seconds`."""
        self._stopping = True
        self.pause()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_seconds)
        return len(self._tasks)

    def _retarget(self, pool: _PoolPolls, target: PollTarget, pool_uid: str) -> _PoolPolls:
        """Start with no polls at the new target; the open polls at the old target end by themselves."""
        self._disarm(pool)
        pool.order = SentinelOrder()
        fresh = _PoolPolls(pool.key, pool_uid, target, SentinelOrder())
        self._pools[pool.key] = fresh
        self._waiting.pop(pool.key, None)
        if pool.error is not None or pool.withheld or pool.polls.open:
            self._on_change(pool.key)
        return fresh

    def _fill(self, pool: _PoolPolls) -> None:
        """Open the polls that may be opened now, and set a timer for the next one."""
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
            pool.polls = sentinel_polls.with_poll(pool.polls, now)
            self._burst_polls += pool.polls.open > sentinel_polls.RESTING_POLLS
            task = loop.create_task(self._poll(pool, now))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _rest(self, pool: _PoolPolls) -> None:
        """Forget a pool without polls, and with it an error that may be out of date, unless it is to be remembered."""
        if pool.polls.open or self._pools.get(pool.key) is not pool:
            return
        if pool.order.remembers and pool.error is not None:
            return
        del self._pools[pool.key]
        self._waiting.pop(pool.key, None)
        if pool.error is not None or pool.withheld:
            self._on_change(pool.key)

    def _may_open(self, pool: _PoolPolls) -> bool:
        self._waiting.pop(pool.key, None)
        if pool.failures and pool.polls.open:
            return False
        leases = self._holdings(pool.key)
        if not sentinel_polls.may_open(pool.order, leases.total, pool.polls):
            return False
        allowance = pool_limit(self._budget, self._totals(), leases, self._burst_polls)
        if sentinel_polls.may_open(pool.order, leases.total, pool.polls, allowance):
            return True
        self._waiting[pool.key] = None
        # Room also appears as time passes, without a change of any lease.
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(WITHHELD_SECONDS, self._fill_later)
        self._note_withheld(pool, pool.tasks_wait)
        return False

    def _fill_later(self) -> None:
        self._later = None
        self._fill_waiting()

    def _fill_waiting(self) -> None:
        """Open polls for the pools that the budget stopped, as far as it has room again."""
        self._wake_up = None
        for key in tuple(self._waiting):
            if (pool := self._pools.get(key)) is not None:
                self._fill(pool)

    def _note_withheld(self, pool: _PoolPolls, withheld: bool) -> None:
        if pool.withheld != withheld:
            pool.withheld = withheld
            if self._pools.get(pool.key) is pool:
                self._on_change(pool.key)

    def _disarm(self, pool: _PoolPolls) -> None:
        if pool.timer is not None:
            pool.timer.cancel()
            pool.timer = None

    async def _poll(self, pool: _PoolPolls, opened: float) -> None:
        loop = asyncio.get_running_loop()
        task: LeasedTask | None = None
        try:
            task = await self._service.poll(pool.target)
            if task is not None:
                pool.tasks_wait = True
                self._on_task(pool.key, pool.pool_uid, pool.target, task)
            self._succeeded(pool, empty=task is None, took=loop.time() - opened)
        except SourceProblemError as problem:
            self._failed(pool, problem)
        except Exception as error:
            log.exception("a poll for %s/%s failed unexpectedly", *pool.key)
            self._failed(pool, SourceProblemError("BackendUnreachable", f"a poll failed: {type(error).__name__}"))
        finally:
            self._burst_polls -= pool.polls.open > sentinel_polls.RESTING_POLLS
            pool.polls = sentinel_polls.with_answer(pool.polls, opened, loop.time(), task=task is not None)
        known = self._pools.get(pool.key) is pool
        self._fill(pool)
        if known and task is None and not pool.polls.open and self._follows_late(pool):
            # Workers may stand by for the sake of this poll.
            self._on_change(pool.key)

    @staticmethod
    def _follows_late(pool: _PoolPolls) -> bool:
        """Whether no further poll is due, or one after a failure that no condition shows."""
        return pool.timer is None or (bool(pool.failures) and pool.error is None)

    def _succeeded(self, pool: _PoolPolls, *, empty: bool, took: float) -> None:
        pool.failures.clear()
        pool.heard_at = self._now()
        pool.not_before = float("-inf")
        if empty:
            cycle = max(took, sentinel_polls.LEAST_CYCLE_SECONDS)
            pool.polls = replace(pool.polls, hold_seconds=cycle)
            pool.not_before = asyncio.get_running_loop().time() + cycle - took
            pool.tasks_wait = False
            self._note_withheld(pool, False)
        self._note_problem(pool, None)

    def _failed(self, pool: _PoolPolls, problem: SourceProblemError) -> None:
        pool.failures.add(problem)
        wait = pool.failures.pause_seconds(self._retry, self._jitter)
        pool.not_before = asyncio.get_running_loop().time() + wait
        if pool.failures.shows(problem, self._retry):
            self._note_problem(pool, problem)

    def _note_problem(self, pool: _PoolPolls, problem: SourceProblemError | None) -> None:
        """Store the error with its start; call `on_change` if it changed and the pool is not forgotten."""
        before = pool.error
        pool.error = None if problem is None else problem.noted(before, self._now())
        if pool.error != before and self._pools.get(pool.key) is pool:
            self._on_change(pool.key)
