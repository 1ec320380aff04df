"""The `ActivityConsumer`: the life of a process with one or more pools."""

import asyncio
import signal
from collections.abc import Sequence

from activity_worker.contract import EXIT_ERROR, EXIT_OK, ExitOutput
from activity_worker.runtime.lifecycle import SlotStatus, step
from activity_worker.runtime.slot_pool import SlotPool

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ActivityConsumer:
    """Starts and stops pools together. `close_sources` (True) closes their sources, once each, when it has stopped."""

    def __init__(self, pools: Sequence[SlotPool], *, close_sources: bool = True) -> None:
        if not pools:
            raise ValueError("pools: give at least one SlotPool")
        self.pools = tuple(pools)
        self.exit_output: ExitOutput | None = None
        self._close_sources = close_sources
        self._status = SlotStatus.READY
        self._asked_to_stop = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None

    @property
    def status(self) -> SlotStatus:
        """Where it is in its lifecycle."""
        return self._status

    async def start(self) -> None:
        """Start every pool. When one cannot start, the others are stopped and its error is raised."""
        self._status = step(self._status, SlotStatus.STARTING)
        self._asked_to_stop.clear()
        self.exit_output = None
        outcomes = await asyncio.gather(*(pool.start() for pool in self.pools), return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failed:
            await self._end(ExitOutput(EXIT_ERROR, str(failed[0]) or type(failed[0]).__name__), None, False)
            raise failed[0]
        if self._status is SlotStatus.STARTING:
            self._status = step(self._status, SlotStatus.RUNNING)

    async def stop(self, *, timeout_seconds: float | None = None, abort_polls: bool = False) -> None:
        """Stop every pool as `Slot.stop` does; return when the consumer has stopped.

        A second call during the stop adds its own terms: the shorter time-out and `abort_polls` of either call count. A
        cancelled call leaves the stop under way.
        """
        self._asked_to_stop.set()
        if self._status in {SlotStatus.STARTING, SlotStatus.RUNNING}:
            await self._end(ExitOutput(EXIT_OK), timeout_seconds, abort_polls)
        elif self._status is SlotStatus.STOPPING and self._ending is not None:
            await self._stop_pools(timeout_seconds, abort_polls)
            await asyncio.shield(self._ending)

    async def run(self, *, signals: bool = True, timeout_seconds: float | None = None) -> ExitOutput:
        """Start, work until SIGTERM, SIGINT (unless `signals` is False) or `stop()`, stop, and say how it ended.

        A signal that comes again means nothing new.
        """
        loop = asyncio.get_running_loop()
        caught = _SIGNALS if signals else ()
        for number in caught:
            loop.add_signal_handler(number, self._asked_to_stop.set)
        try:
            await self._run_until_asked(timeout_seconds)
        finally:
            for number in caught:
                loop.remove_signal_handler(number)
        return self.exit_output or ExitOutput(EXIT_OK)

    async def _run_until_asked(self, timeout_seconds: float | None) -> None:
        """Start, and stop when asked to, also during the start."""
        starting = asyncio.create_task(self.start())
        # The first step of the start forgets what was asked before.
        await asyncio.sleep(0)
        asked = asyncio.create_task(self._asked_to_stop.wait())
        try:
            await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                await starting
            await asked
            await self.stop(timeout_seconds=timeout_seconds)
            await starting
        finally:
            asked.cancel()
            starting.cancel()

    async def _end(self, output: ExitOutput, timeout_seconds: float | None, abort_polls: bool) -> None:
        self._status = step(self._status, SlotStatus.STOPPING)
        self._ending = asyncio.create_task(self._stop_everything(output, timeout_seconds, abort_polls))
        await asyncio.shield(self._ending)

    async def _stop_everything(self, output: ExitOutput, timeout_seconds: float | None, abort_polls: bool) -> None:
        await self._stop_pools(timeout_seconds, abort_polls)
        if self._close_sources:
            for source in {id(pool.source): pool.source for pool in self.pools}.values():
                await source.close()
        self.exit_output = output
        self._status = step(self._status, SlotStatus.STOPPED)

    async def _stop_pools(self, timeout_seconds: float | None, abort_polls: bool) -> None:
        stops = (pool.stop(timeout_seconds=timeout_seconds, abort_polls=abort_polls) for pool in self.pools)
        await asyncio.gather(*stops)
