"""Brokers that speak the protocol of taskbroker as a source: a lease is an activation, until its processing deadline.

The answer to a report may bring the next task, which saves a call for each task.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final

from activity_worker.config.sources import TaskbrokerSettings
from activity_worker.contract import LeasedTask
from activity_worker.sources.taskbroker_leases import (
    GRACE_SECONDS,
    HOLD_SECONDS,
    LATE_REPORT_SECONDS,
    TaskbrokerLeases,
    channels_of,
    deadline_seconds_of,
    translate,
)
from activity_worker.taskbroker.consumer import SHARED_WAIT_SECONDS, GivenTask, TaskConsumer
from activity_worker.taskbroker.lifecycle.attempts import FailureReport
from activity_worker.taskbroker.protocol.channel import TaskbrokerError

__all__ = ["GRACE_SECONDS", "LATE_REPORT_SECONDS", "TaskbrokerSource", "translate"]

#: Seconds for which a broker of this project holds a call for tasks until there is one. A worker that drains waits for
#: the open call, because a call that is given up may have its task already.
WAIT_SECONDS: Final = 2.0
#: Seconds between two questions of a worker to brokers that answer at once without a task: the first, growing up to the
#: last.
FIRST_PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 2.0
_PAUSE_GROWTH: Final = 1.5


class TaskbrokerSource(TaskbrokerLeases):
    """The brokers that `settings` name. Make it in a running event loop; `hold_seconds` is how long a poll waits.

    `clock` is in seconds, and never goes back.
    """

    def __init__(
        self,
        settings: TaskbrokerSettings,
        *,
        hold_seconds: float = HOLD_SECONDS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(settings, clock)
        wanted = {"namespace": settings.namespace, "application": settings.application}
        self._consumer = TaskConsumer(channels_of(settings), **wanted, clock=self._clock, unclaimed=self._keep)
        self._hold_seconds = hold_seconds
        #: Tasks that no slot has taken yet, and when they came: those of slots that wait, or have given up their poll.
        self._unclaimed: deque[tuple[GivenTask, float]] = deque()
        #: Slots that wait for a task.
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._cordoned = asyncio.Event()
        self._pause = 0.0
        self._ask_at = 0.0

    async def lease(self, worker_name: str) -> LeasedTask | None:  # noqa: ARG002 - the protocol has no names of workers
        """Ask for a task; None after `hold_seconds` without one. Raises `SourceError`s.

        One slot at a time asks, for all that wait.
        """
        until = self._clock() + self._hold_seconds
        self._waiting += 1
        try:
            while True:
                async with self._turn:
                    if (lease := self._take_unclaimed()) is not None:
                        return lease
                    if self._cordoned.is_set() or self._clock() >= until or not await self._is_time(until):
                        return None
                    await self._asked(until)
                    if (lease := self._take_unclaimed()) is not None:
                        return lease
        finally:
            self._waiting -= 1

    def want_next(self, token: str, wanted: bool) -> None:
        """Say whether the answer to this task's report may bring the next task, for the same slot."""
        lease = self._leases.get(token)
        if lease is not None:
            lease.fetches = wanted and not self._cordoned.is_set()

    def take_next(self, token: str) -> LeasedTask | None:
        """Return the task that the answer to this task's report brought, once."""
        return self._next.pop(token, None)

    def cordon(self, on: bool) -> None:
        """End the polls that wait, or (False) let them wait again."""
        if on:
            self._cordoned.set()
        else:
            self._cordoned.clear()

    async def close(self) -> None:
        """Close the connections. What is not reported is given out again after its deadline."""
        await self._consumer.close()

    async def _send(self, given: GivenTask, report: FailureReport, *, fetch: bool) -> GivenTask | None:
        return await self._consumer.report(given, report, fetch=fetch)

    async def _is_time(self, until: float) -> bool:
        """Wait until the brokers may be asked again; False when the poll ends before."""
        wait = min(self._ask_at, until) - self._clock()
        if wait > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._cordoned.wait()
        return not self._cordoned.is_set() and self._ask_at <= self._clock()

    async def _asked(self, until: float) -> None:
        # A poll that is given up leaves the answer to the others.
        asking = asyncio.create_task(self._ask(until))
        try:
            await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(lambda over: over.cancelled() or over.exception())
            raise

    async def _ask(self, until: float) -> None:
        began = self._clock()
        wait = max(min(WAIT_SECONDS, until - began), 0.0)
        try:
            some = await self._consumer.get_many(self._waiting, wait)
        except TaskbrokerError as error:
            raise translate(error) from error
        now = self._clock()
        if some or now - began >= min(wait, SHARED_WAIT_SECONDS) / 2:
            # The brokers have held the call.
            self._pause = 0.0
        else:
            self._pause = min(max(self._pause * _PAUSE_GROWTH, FIRST_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
        self._ask_at = now + self._pause
        for given in some:
            self._keep(given)

    def _keep(self, given: GivenTask) -> None:
        self._unclaimed.append((given, self._clock()))

    def _take_unclaimed(self) -> LeasedTask | None:
        while self._unclaimed:
            given, came_at = self._unclaimed.popleft()
            # One that has waited beyond its deadline is left to its broker.
            if self._clock() < came_at + deadline_seconds_of(given.activation):
                return self._leased(given, came_at)
        return None
