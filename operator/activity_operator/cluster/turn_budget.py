"""Gives the event loop back between two reconciliations, so that other tasks never wait for a whole queue of pools.

A reconciliation that writes nothing never suspends. Without this the reconcile loops work off thousands of pools in one
turn of the event loop, while the Lease, the reports and the polls wait.
"""

import asyncio
from collections.abc import Callable

#: Seconds of reconciliations after which the next one waits for the loop's next turn, however many loops there are.
TURN_SECONDS = 0.01


class TurnBudget:
    """Shared by all reconcile loops of one event loop. `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float], seconds: float = TURN_SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._began: float | None = None
        self._ended = asyncio.Event()

    async def next_turn(self) -> None:
        """Give the loop back; return in a turn in which the budget is not used up."""
        await asyncio.sleep(0)
        while self._began is not None and self._clock() - self._began >= self._seconds:
            await self._ended.wait()

    def begin(self) -> None:
        """Measure this turn of the loop from the first reconciliation in it."""
        if self._began is None:
            self._began = self._clock()
            self._ended.clear()
            asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        self._began = None
        self._ended.set()
