"""Calls that wait at the broker until a task is pending: in a line for each choice of tasks, first come, first served.

Only the first call of a line looks into the store: when tasks were added or moved here, and now and then for those of
other brokers and processes. A call that leaves the line wakes the next one. The first call need not look for a task
that is added here: it is offered what the transaction gives out that adds the task.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from activity_worker.taskbroker.store.statements import GivenOut, TaskFilter

#: What a look into the store finds.
Found = TypeVar("Found", bound=Sized)
#: A transaction under way: how many activations it adds, and what it gives out.
Offer = asyncio.Future[tuple[int, Sequence[GivenOut]]]
#: The longest wait of a call, in seconds.
MAX_WAIT_SECONDS: Final = 30.0
#: The most calls that wait; a further one is answered at once.
MAX_WAITING: Final = 1000
#: Seconds between two looks for tasks that another process has added.
LOOK_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class OfferReceiver(Generic[Found]):
    """How a call takes an offer of at most `most` tasks: `accept` returns what it found, nothing if it failed.

    `decline` is called for an offer to a call that has gone meanwhile.
    """

    most: int
    accept: Callable[[Offer], Awaitable[Found]]
    decline: Callable[[Offer], None]


@dataclass(eq=False, slots=True)
class _Caller:
    receiver: OfferReceiver[Any] | None
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    #: Whether it looks into the store, or has an offer: such a call gets no other.
    busy: bool = False
    offer: Offer | None = None


class WaitingCalls:
    """The lines of one broker. Use it in one event loop."""

    def __init__(self, look_seconds: float = LOOK_SECONDS) -> None:
        self._look_seconds = look_seconds
        self._lines: dict[TaskFilter, deque[_Caller]] = {}
        self._closed = False

    @property
    def number(self) -> int:
        """How many calls wait."""
        return sum(map(len, self._lines.values()))

    async def first(
        self,
        wanted: TaskFilter,
        seconds: float,
        take: Callable[[], Awaitable[Found]],
        receiver: OfferReceiver[Found] | None = None,
    ) -> Found:
        """Return what `take` or an offer finds, as soon as one finds something; what `take` found last after `seconds`.

        `take` is called when it is the call's turn, at least once. A call without a `receiver` gets no offers.
        """
        if seconds <= 0 or self._closed or self.number >= MAX_WAITING:
            return await take()
        until = asyncio.get_running_loop().time() + min(seconds, MAX_WAIT_SECONDS)
        caller = _Caller(receiver)
        line = self._lines.setdefault(wanted, deque())
        line.append(caller)
        # The first one looks for all: a task may be there that this broker was not told about.
        line[0].woken.set()
        try:
            while True:
                over = await self._wait(caller, until)
                if line[0] is caller or over or caller.offer is not None:
                    found = await self._found(caller, take)
                    if found or over:
                        return found
        finally:
            self._leave(wanted, line, caller)

    def offer(self, queues: Collection[tuple[str, str]], begin: Callable[[TaskFilter, int], Offer]) -> "Offer | None":
        """Offer a transaction to the first call that may want new tasks of these queues; None if there is none.

        `begin` begins the transaction. It gets the choice of tasks, and the most tasks to give out.
        """
        for wanted, line in self._lines.items():
            first = line[0]
            if first.busy or first.receiver is None or not _wants(wanted, queues):
                continue
            first.busy, first.offer = True, begin(wanted, first.receiver.most)
            first.woken.set()
            return first.offer
        return None

    def added(self, queues: Collection[tuple[str, str]]) -> None:
        """Wake those who may want new tasks of these applications and namespaces."""
        for wanted, line in self._lines.items():
            if _wants(wanted, queues):
                line[0].woken.set()

    def wake(self) -> None:
        """Let the first call of each line look into the store."""
        for line in self._lines.values():
            line[0].woken.set()

    def close(self) -> None:
        """Let no call wait any longer."""
        self._closed = True
        for line in self._lines.values():
            for caller in line:
                caller.woken.set()

    async def _wait(self, caller: _Caller, until: float) -> bool:
        """Wait until the call is woken, or may look again; return whether its time is over."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(max(until - loop.time(), 0.0), self._look_seconds)):
                await caller.woken.wait()
        return self._closed or loop.time() >= until

    @staticmethod
    async def _found(caller: _Caller, take: Callable[[], Awaitable[Found]]) -> Found:
        """Return what an offer or else a look finds."""
        caller.woken.clear()
        offer, caller.offer, caller.busy = caller.offer, None, True
        try:
            if offer is not None and caller.receiver is not None:
                found: Found = await caller.receiver.accept(offer)
                if found:
                    return found
            return await take()
        finally:
            caller.busy = False

    def _leave(self, wanted: TaskFilter, line: deque[_Caller], caller: _Caller) -> None:
        line.remove(caller)
        if caller.offer is not None and caller.receiver is not None:
            caller.receiver.decline(caller.offer)
        if line:
            line[0].woken.set()
        else:
            del self._lines[wanted]


def _wants(wanted: TaskFilter, queues: Collection[tuple[str, str]]) -> bool:
    return any(wanted.wants(application, namespace) for application, namespace in queues)
