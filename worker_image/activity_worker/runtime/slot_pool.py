"""The `SlotPool` keeps the desired number of slots running for one source."""

import asyncio
import logging
import random
import socket
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from activity_worker.contract import EXIT_ERROR, EXIT_OK, Counters, ExitOutput, HeldLease
from activity_worker.events import EventEmitter
from activity_worker.runtime.counters import TaskCounters
from activity_worker.runtime.handler_runner import HandlerRunner
from activity_worker.runtime.lifecycle import SlotStatus, step
from activity_worker.runtime.options import Polling, TaskOptions
from activity_worker.runtime.slot import MAX_NAME_LENGTH, Slot
from activity_worker.runtime.slot_stop import STOP_SECONDS
from activity_worker.sources.protocol import Source

if TYPE_CHECKING:
    from activity_worker.handlers.registry import Activities
    from activity_worker.handlers.signature import Handler

_log = logging.getLogger(__name__)

_SUFFIX_LENGTH = 5
_LEFT_BEHIND_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class SlotPoolSnapshot:
    """What the slots do at one moment, for reports. `free_slots` could run a granted lease.

    `poll_trouble` is an error of the polls if the polls of all slots without a task fail.
    """

    slots: int
    busy: int
    open_polls: int
    free_slots: int
    idle_seconds: float
    leases: tuple[HeldLease, ...] = ()
    counters: Counters = field(default_factory=Counters)
    poll_trouble: Exception | None = None


class SlotPool:
    """Runs `slots` slots for one source, which share an emitter and counters.

    Give either `handler`, a function or a registry, or `runner_factory`, which is called once for each slot. A slot
    that stopped with an error is replaced `restart_interval_seconds` (2) later. A slot's name is `name_prefix` (the
    host's name), a colon and five random letters. The caller closes the source.
    """

    def __init__(
        self,
        source: Source,
        handler: "Activities | Handler | None" = None,
        *,
        runner_factory: Callable[[], HandlerRunner] | None = None,
        slots: int = 1,
        name_prefix: str | None = None,
        restart_interval_seconds: float = 2.0,
        events: EventEmitter | None = None,
        polling: Polling | None = None,
        options: TaskOptions | None = None,
        suffix: Callable[[], str] | None = None,
    ) -> None:
        if (handler is None) == (runner_factory is None):
            raise ValueError("handler, runner_factory: give exactly one of them")
        if handler is not None:
            _check(handler)
        if not restart_interval_seconds > 0:
            raise ValueError(f"restart_interval_seconds: {restart_interval_seconds}: must be above 0")
        self.events = events or EventEmitter()
        self.counters = TaskCounters()
        self.source = source
        self.exit_output: ExitOutput | None = None
        self._handler = handler
        self._runner_factory = runner_factory
        self._prefix = (name_prefix or socket.gethostname())[: MAX_NAME_LENGTH - _SUFFIX_LENGTH - 1]
        self._suffix = suffix or _random_suffix
        self._restart_interval = restart_interval_seconds
        self._polling = polling
        self._options = options
        self._status = SlotStatus.READY
        self._desired = _capacity(slots)
        self._cordoned = False
        self._stands_by = False
        self._slots: dict[str, Slot] = {}
        self._leaving: set[str] = set()
        self._begins: set[asyncio.Task[Exception | None]] = set()
        self._stops: set[asyncio.Task[None]] = set()
        self._lifetimes: dict[str, asyncio.Task[None]] = {}
        self._restart: asyncio.TimerHandle | None = None
        self._idle_since = 0.0

    @property
    def status(self) -> SlotStatus:
        """The pool's place in its lifecycle."""
        return self._status

    @property
    def members(self) -> tuple[Slot, ...]:
        """The present slots, with those that are stopping."""
        return tuple(self._slots.values())

    @property
    def current_capacity(self) -> int:
        """The number of present slots that are not stopping."""
        return len(self._slots) - len(self._leaving)

    @property
    def desired_capacity(self) -> int:
        """The wanted number of slots. Setting it resizes a running pool; a removed slot finishes its task first."""
        return self._desired

    @desired_capacity.setter
    def desired_capacity(self, count: int) -> None:
        self._desired = _capacity(count)
        self._resize()

    async def start(self) -> None:
        """Start the slots. If none can start, stop the pool and raise the first error."""
        self._status = step(self._status, SlotStatus.STARTING)
        self.exit_output = None
        self._idle_since = asyncio.get_running_loop().time()
        starting = [self._add_slot() for _ in range(self._desired)]
        outcomes = await asyncio.gather(*starting)
        if self._status is not SlotStatus.STARTING:
            return
        failed = [outcome for outcome in outcomes if outcome is not None]
        if failed and len(failed) == len(outcomes):
            self.exit_output = ExitOutput(EXIT_ERROR, str(failed[0]) or type(failed[0]).__name__)
            await self.stop()
            raise failed[0]
        self._status = step(self._status, SlotStatus.RUNNING)
        self._resize()

    async def stop(
        self, *, timeout_seconds: float | None = None, abort_polls: bool = False, conclude_seconds: float = STOP_SECONDS
    ) -> None:
        """Stop all slots as `Slot.stop` does; returns when they have stopped."""
        if self._status in {SlotStatus.READY, SlotStatus.STOPPED}:
            return
        if self._status is not SlotStatus.STOPPING:
            self._status = step(self._status, SlotStatus.STOPPING)
        self._cancel_restart()
        stops = (
            slot.stop(timeout_seconds=timeout_seconds, abort_polls=abort_polls, conclude_seconds=conclude_seconds)
            for slot in self.members
        )
        await asyncio.gather(*stops)
        for lifetime in list(self._lifetimes.values()):
            # Every slot is done by now, except one whose handler ignored its cancellation and was left behind.
            await asyncio.wait((lifetime,), timeout=_LEFT_BEHIND_SECONDS)
            lifetime.cancel()
        self._lifetimes.clear()
        self._slots.clear()
        self._leaving.clear()
        if self._status is SlotStatus.STOPPING:
            self.exit_output = self.exit_output or ExitOutput(EXIT_OK)
            self._status = step(self._status, SlotStatus.STOPPED)

    async def settled(self) -> None:
        """Wait until no slot is starting or stopping."""
        while waiting := [*self._begins, *(self._lifetimes[name] for name in self._leaving)]:
            await asyncio.wait(waiting)

    def cordon(self) -> None:
        """Start no new poll in any present or later slot. May be called before `start`."""
        self._cordoned = True
        for slot in self.members:
            slot.cordon()

    def uncordon(self) -> None:
        """Poll again."""
        self._cordoned = False
        for name, slot in self._slots.items():
            if name not in self._leaving:
                slot.uncordon()

    def stand_by(self, on: bool) -> None:
        """Open no new poll in any present or later slot, so that it is free for a granted lease; or (False) poll."""
        if on is not self._stands_by:
            self._stands_by = on
            for slot in self.members:
                slot.stands_by = on
                slot.poller.wake()

    @property
    def drained(self) -> bool:
        """Whether the pool is cordoned and no slot has a task, an open poll or a reservation."""
        return self._cordoned and all(slot.drained for slot in self._slots.values())

    def reserve(self) -> Slot | None:
        """Return a free slot that does not poll until its `run_task` or `release`; None if no slot is free."""
        for name, slot in self._slots.items():
            if name not in self._leaving and slot.reserve():
                return slot
        return None

    def snapshot(self, now: float) -> SlotPoolSnapshot:
        """Return what the slots do; `now` is the event loop's time."""
        members = self.members
        busy = [slot for slot in members if slot.busy]
        runs = [slot.current for slot in busy if slot.current is not None]
        running = sum(max(now - run.since, 0.0) for run in runs)
        free_since = [w.idle_since for w in members if not w.busy and w.idle_since is not None]
        # Without a busy slot the last end of a task counts, else the wait of the slot that is free for longest.
        idle_since = min(free_since, default=now) if busy else max([self._idle_since, *free_since])
        return SlotPoolSnapshot(
            slots=max(self._desired, len(members)),
            busy=len(busy),
            open_polls=sum(slot.poller.open for slot in members),
            free_slots=sum(slot.free for name, slot in self._slots.items() if name not in self._leaving),
            idle_seconds=max(now - idle_since, 0.0),
            leases=tuple(lease for run in runs if (lease := run.held(now)) is not None),
            counters=self.counters.totals(running),
            poll_trouble=_common_poll_error([slot for slot in members if not slot.busy], now),
        )

    def _resize(self) -> None:
        if self._status is not SlotStatus.RUNNING:
            return
        while self.current_capacity < self._desired and self._restart is None:
            self._add_slot()
        staying = [name for name in self._slots if name not in self._leaving]
        # Idle slots go first, because they stop at once. Of the busy ones the newest goes first.
        staying.sort(key=lambda name: self._slots[name].busy)
        for name in staying[: max(self.current_capacity - self._desired, 0)]:
            self._leaving.add(name)
            stopping = asyncio.get_running_loop().create_task(self._slots[name].stop())
            self._stops.add(stopping)
            stopping.add_done_callback(self._stops.discard)

    def _add_slot(self) -> "asyncio.Task[Exception | None]":
        name = f"{self._prefix}:{self._suffix()}"
        while name in self._slots:
            name = f"{self._prefix}:{self._suffix()}"
        slot = Slot(
            self.source,
            self._handler,
            runner=None if self._runner_factory is None else self._runner_factory(),
            worker_name=name,
            events=self.events,
            polling=self._polling,
            options=self._options,
            counters=self.counters,
        )
        if self._cordoned:
            slot.cordon()
        slot.stands_by = self._stands_by
        self._slots[name] = slot
        begin = asyncio.get_running_loop().create_task(self._begin(slot))
        self._begins.add(begin)
        begin.add_done_callback(self._begins.discard)
        self._lifetimes[name] = asyncio.get_running_loop().create_task(self._oversee(slot, begin))
        return begin

    async def _begin(self, slot: Slot) -> Exception | None:
        """Start a slot and return its error, which is also in its events and its exit output."""
        if self._status not in {SlotStatus.STARTING, SlotStatus.RUNNING}:
            return None
        try:
            await slot.start()
        except Exception as error:  # noqa: BLE001 - a runner may raise anything; the pool tries again
            return error
        return None

    async def _oversee(self, slot: Slot, begin: "asyncio.Task[Exception | None]") -> None:
        """Wait for a slot's end and remove it from the pool; replace it if it crashed."""
        await asyncio.wait((begin,))
        output = await slot.wait_stopped()
        self._idle_since = max(self._idle_since, slot.idle_since or 0.0)
        self._slots.pop(slot.worker_name, None)
        self._leaving.discard(slot.worker_name)
        self._lifetimes.pop(slot.worker_name, None)
        if output.code != EXIT_OK and self._status in {SlotStatus.STARTING, SlotStatus.RUNNING}:
            _log.warning("slot %s ended (%s); another starts soon", slot.worker_name, output.error)
            self._restart_later()

    def _restart_later(self) -> None:
        if self._restart is None:
            loop = asyncio.get_running_loop()
            self._restart = loop.call_later(self._restart_interval, self._restart_now)

    def _restart_now(self) -> None:
        self._restart = None
        self._resize()

    def _cancel_restart(self) -> None:
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None


def _capacity(count: int) -> int:
    if count < 0:
        raise ValueError(f"capacity: {count}: must be 0 or more")
    return count


def _random_suffix() -> str:
    return "".join(random.choices(string.ascii_lowercase, k=_SUFFIX_LENGTH))  # noqa: S311 - a name, not a secret


def _common_poll_error(free: Sequence[Slot], now: float) -> Exception | None:
    troubles = [slot.poller.trouble(now) for slot in free]
    return troubles[0] if troubles and all(troubles) else None


def _check(handler: "Activities | Handler") -> None:
    """Read the handler's signature as each slot will; raises `HandlerSignatureError`."""
    from activity_worker.handlers.table import HandlerTable  # noqa: PLC0415 - not for handlers in processes

    HandlerTable(handler)
