"""Brokers that push their tasks to this worker as a source. A push is accepted when a slot takes its task."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final, Self

from activity_worker.config.sources import TaskbrokerSettings
from activity_worker.contract import LeasedTask
from activity_worker.sources.taskbroker_leases import HOLD_SECONDS, TaskbrokerLeases, channels_of
from activity_worker.taskbroker.consumer import GivenTask
from activity_worker.taskbroker.lifecycle.attempts import FailureReport
from activity_worker.taskbroker.protocol.channel import TaskbrokerChannel
from activity_worker.taskbroker.push.receiver import PushReceiver, ReceiverOptions
from activity_worker.taskbroker.push.registration import Registrations, WorkerRoom
from activity_worker.taskbroker.push.reports import PushReports

#: Seconds that a push waits for a slot: a slot that reports its task is free a moment later.
BUSY_SECONDS: Final = 1.0
#: The most pushes that wait for a slot.
MAX_OFFERS: Final = 100


class _Offer:
    def __init__(self, given: GivenTask) -> None:
        self.given = given
        self.accepted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()


class TaskbrokerPushSource(TaskbrokerLeases):
    """Tasks that the brokers of `settings` push. `open` it in a running event loop; `hold_seconds` is a poll's wait.

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
        self.port = 0
        self._settings = settings
        self._hold_seconds = hold_seconds
        self._channels = {one.address: TaskbrokerChannel(one) for one in channels_of(settings)}
        self._reports = PushReports(self._channels)
        options = ReceiverOptions(settings.push_address, settings.addresses, settings.secrets, settings.push_tls)
        self._receiver = PushReceiver(options, self._take)
        self._registrations: Registrations | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._waiting: deque[asyncio.Future[GivenTask]] = deque()
        self._offers: deque[_Offer] = deque()
        #: Tasks that came after their poll was given up.
        self._unclaimed: deque[GivenTask] = deque()
        self._cordoned = False
        self._serves = False
        self._slots = 0

    @classmethod
    async def open(
        cls,
        settings: TaskbrokerSettings,
        *,
        hold_seconds: float = HOLD_SECONDS,
        clock: Callable[[], float] | None = None,
    ) -> Self:
        """Return a source that listens. It takes no push before its first poll. Raises OSError."""
        source = cls(settings, hold_seconds=hold_seconds, clock=clock)
        try:
            source.port = await source._receiver.start()
        except BaseException:
            await source._reports.close()
            raise
        return source

    async def lease(self, worker_name: str) -> LeasedTask | None:  # noqa: ARG002 - the protocol has no names of workers
        """Wait for a task that is pushed; None after `hold_seconds` without one."""
        if self._unclaimed:
            return self._leased(self._unclaimed.popleft())
        if self._cordoned:
            return None
        while self._offers:
            offer = self._offers.popleft()
            if not offer.accepted.done():
                offer.accepted.set_result(True)
                return self._leased(offer.given)
        slot: asyncio.Future[GivenTask] = asyncio.get_running_loop().create_future()
        self._waiting.append(slot)
        self._show_room()
        try:
            await asyncio.wait((slot,), timeout=self._hold_seconds)
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():
                self._unclaimed.append(slot.result())
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._waiting.remove(slot)
        return self._leased(slot.result()) if slot.done() and not slot.cancelled() else None

    def cordon(self, on: bool) -> None:
        """Refuse pushes and end the polls that wait, or (False) take pushes again."""
        self._cordoned = on
        if on:
            for slot in self._waiting:
                slot.cancel()
            for offer in self._offers:
                if not offer.accepted.done():
                    offer.accepted.set_result(False)
        if self._serves:
            self._spawn_health()
            if self._registrations is not None:
                self._registrations.changed()

    async def close(self) -> None:
        """Leave the worker maps, listen no longer. What is not reported is pushed again after its deadline."""
        self._cordoned = True
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._registrations is not None:
            await self._registrations.leave()
        await self._receiver.stop()
        await self._reports.close()

    async def _send(self, given: GivenTask, report: FailureReport, *, fetch: bool) -> None:  # noqa: ARG002 - nothing is fetched
        await self._reports.report(given.broker, given.activation.id, report)

    async def _take(self, given: GivenTask) -> bool:
        """Give a pushed task to a slot; False when none takes it in time.

        A broker that did not hear that its push was accepted may push the task again: it is run once.
        """
        key = (given.broker, given.activation.id)
        if any((lease.given.broker, lease.given.activation.id) == key for lease in self._leases.values()):
            return True
        if self._cordoned or not self._serves:
            return False
        while self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(given)
                return True
        if len(self._offers) >= MAX_OFFERS:
            return False
        offer = _Offer(given)
        self._offers.append(offer)
        try:
            # Not `wait_for`: it ends with a time-out when the slot takes the task at that very moment.
            await asyncio.wait((offer.accepted,), timeout=BUSY_SECONDS)
            return offer.accepted.done() and offer.accepted.result()
        finally:
            with contextlib.suppress(ValueError):
                self._offers.remove(offer)

    def _abandon(self, token: str) -> None:
        super()._abandon(token)
        if self._registrations is not None:
            # No report tells the broker that the slot is free.
            self._registrations.changed()

    def _show_room(self) -> None:
        """Tell the brokers when the worker has more slots than they know of. The first poll begins that."""
        slots = sum(not slot.done() for slot in self._waiting) + len(self._leases)
        if slots > self._slots:
            self._slots = slots
            if self._registrations is not None:
                self._registrations.changed()
        if not self._serves:
            self._serves = True
            self._spawn_health()
            self._register()

    def _spawn_health(self) -> None:
        self._spawn(asyncio.create_task(self._receiver.set_serving(not self._cordoned)))

    def _register(self) -> None:
        host = self._settings.advertise
        if host is None:
            return
        wanted = {"namespace": self._settings.namespace, "application": self._settings.application}
        shown = f"[{host}]" if ":" in host else host
        self._registrations = Registrations(
            f"{shown}:{self.port}", self._channels, {name: one for name, one in wanted.items() if one}, self._room
        )
        self._spawn(asyncio.create_task(self._registrations.run()))

    def _room(self) -> WorkerRoom:
        return WorkerRoom(0 if self._cordoned else self._slots, len(self._leases))

    def _spawn(self, task: "asyncio.Task[None]") -> None:
        self._background.add(task)
        task.add_done_callback(self._background.discard)
