"""The sentinel: while a pool has no ready worker the operator polls for it, and what a poll brings is proof of demand.

A poll is never aborted: an aborted one can lose a task that the service has already handed over. So lowering an order
opens no more polls and waits for the open ones, and so does `stop`.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from activity_operator.backlog import backoff, poller
from activity_operator.backlog.protocol import Holdings, Key, PollTarget, SourceProblemError, TaskService
from activity_operator.core.decision import SentinelOrder
from activity_operator.core.observation import SourceError, SourceFacts
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
class _Watch:
    """One pool's polls at one target, and how they fare. Times are the loop's, except `heard_at` (Unix seconds)."""

    key: Key
    pool_uid: str
    target: PollTarget
    order: SentinelOrder
    polls: poller.Polls = field(default_factory=poller.Polls)
    failures: int = 0
    throttled: int = 0
    not_before: float = float("-inf")
    error: SourceError | None = None
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
        holdings: Callable[[Key], Holdings],
        on_task: OnTask,
        on_change: Callable[[Key], None],
        now: Callable[[], float],
        dice: backoff.Dice = random.random,
    ) -> None:
        self._service = service
        self._holdings = holdings
        self._on_task = on_task
        self._on_change = on_change
        self._now = now
        self._dice = dice
        self._watches: dict[Key, _Watch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    def order(self, key: Key, order: SentinelOrder, target: PollTarget, pool_uid: str = "") -> None:
        """Keep so many polls open for the pool from now on. Cheap when nothing changed; raises nothing."""
        watch = self._watches.get(key)
        if watch is None:
            if not order.polls:
                return
            watch = self._watches[key] = _Watch(key, pool_uid, target, order)
        elif (watch.target, watch.pool_uid) != (target, pool_uid):
            watch = self._retarget(watch, target, pool_uid)
        watch.order = order
        self._fill(watch)

    def forget(self, key: Key) -> None:
        """Open no more polls for a pool that is gone; what its open ones bring is still handed on."""
        watch = self._watches.pop(key, None)
        if watch is not None:
            watch.order = SentinelOrder()
            self._disarm(watch)

    def leases_changed(self, key: Key) -> None:
        """Look again whether there is room for another poll, because a lease was claimed or is over."""
        watch = self._watches.get(key)
        if watch is not None:
            self._fill(watch)

    def said(self, key: Key) -> SourceFacts:
        """Return what the operator itself knows of the pool's source; a task proves demand before it is recorded."""
        holdings = self._holdings(key)
        held = holdings.unrecorded + holdings.held
        watch = self._watches.get(key)
        if watch is None:
            return SourceFacts(held=held, claimed=holdings.claimed)
        return SourceFacts(
            open_polls=watch.polls.open,
            held=held,
            claimed=holdings.claimed,
            observed_at=watch.heard_at,
            error=watch.error,
        )

    def pause(self) -> None:
        """Open no more polls for any pool, because this process leads no more; open ones go on."""
        for key in tuple(self._watches):
            self.forget(key)

    async def stop(self, timeout_seconds: float = STOP_SECONDS) -> int:
        """Open no more polls and wait for the open ones; returns how many are still open after `timeout_seconds`."""
        self._stopping = True
        self.pause()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_seconds)
        return len(self._tasks)

    def _retarget(self, watch: _Watch, target: PollTarget, pool_uid: str) -> _Watch:
        """Leave the old target's polls to themselves and begin anew at the new one."""
        self._disarm(watch)
        watch.order = SentinelOrder()
        fresh = _Watch(watch.key, pool_uid, target, SentinelOrder())
        self._watches[watch.key] = fresh
        if watch.error is not None:
            self._on_change(watch.key)
        return fresh

    def _fill(self, watch: _Watch) -> None:
        """Open the polls that may be open now, and come back when the next one may."""
        self._disarm(watch)
        if not watch.order.polls:
            self._rest(watch)
            return
        loop = asyncio.get_running_loop()
        while not self._stopping and self._may_open(watch):
            now = loop.time()
            wait = max(watch.not_before - now, poller.stagger_seconds(watch.order, watch.polls, now))
            if wait > 0:
                watch.timer = loop.call_later(wait, self._fill, watch)
                return
            watch.polls = replace(watch.polls, open=watch.polls.open + 1, last_opened=now)
            task = loop.create_task(self._poll(watch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _rest(self, watch: _Watch) -> None:
        """Drop what is known of a source that is not asked any more: an old error is no news."""
        if watch.polls.open or self._watches.get(watch.key) is not watch:
            return
        del self._watches[watch.key]
        if watch.error is not None:
            self._on_change(watch.key)

    def _may_open(self, watch: _Watch) -> bool:
        if (watch.failures or watch.throttled) and watch.polls.open:
            return False
        return poller.may_open(watch.order, self._holdings(watch.key).total, watch.polls) > 0

    def _disarm(self, watch: _Watch) -> None:
        if watch.timer is not None:
            watch.timer.cancel()
            watch.timer = None

    async def _poll(self, watch: _Watch) -> None:
        loop = asyncio.get_running_loop()
        opened = loop.time()
        try:
            task = await self._service.poll(watch.target)
            if task is not None:
                self._on_task(watch.key, watch.pool_uid, watch.target, task)
            self._succeeded(watch, empty=task is None, took=loop.time() - opened)
        except SourceProblemError as problem:
            self._failed(watch, problem)
        except Exception as error:
            log.exception("a poll for %s/%s failed unexpectedly", *watch.key)
            self._failed(watch, SourceProblemError("BackendUnreachable", f"a poll failed: {type(error).__name__}"))
        finally:
            watch.polls = replace(watch.polls, open=watch.polls.open - 1)
        self._fill(watch)

    def _succeeded(self, watch: _Watch, *, empty: bool, took: float) -> None:
        watch.failures = watch.throttled = 0
        watch.heard_at = self._now()
        watch.not_before = float("-inf")
        if empty:
            cycle = max(took, poller.LEAST_CYCLE_SECONDS)
            watch.polls = replace(watch.polls, hold_seconds=cycle)
            watch.not_before = asyncio.get_running_loop().time() + cycle - took
        self._tell(watch, None)

    def _failed(self, watch: _Watch, problem: SourceProblemError) -> None:
        if problem.throttled:
            watch.throttled += 1
            step = watch.throttled
            wait = backoff.full_jitter(step, THROTTLED_FIRST_SECONDS, THROTTLED_CAP_SECONDS, self._dice)
        else:
            watch.failures += 1
            watch.throttled = 0
            wait = backoff.capped(watch.failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS, self._dice)
        watch.not_before = asyncio.get_running_loop().time() + wait
        if not problem.throttled or watch.throttled >= THROTTLED_TOLD:
            self._tell(watch, problem)

    def _tell(self, watch: _Watch, problem: SourceProblemError | None) -> None:
        """Keep the error, with the time it began; call back once a change. A forgotten pool's is nobody's."""
        before = watch.error
        watch.error = None if problem is None else problem.noted(before, self._now())
        if watch.error != before and self._watches.get(watch.key) is watch:
            self._on_change(watch.key)
