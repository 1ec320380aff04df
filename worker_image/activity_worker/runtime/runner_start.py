"""The start of a slot's runner, which a stop gives up: the slot has no task yet, and the start may never end."""

import asyncio

from activity_worker.runtime.handler_runner import HandlerRunner


class RunnerStart:
    """Starts `runner`, within the task of a slot's loop."""

    def __init__(self, runner: HandlerRunner) -> None:
        self._runner = runner
        self._host: asyncio.Task[None] | None = None
        self._given_up = False

    async def run(self) -> None:
        """Start the runner; returns as well when the start is given up. Raises the runner's error."""
        self._given_up = False
        self._host = host = asyncio.current_task()
        try:
            await self._runner.start()
        except asyncio.CancelledError:
            if not self._given_up or host is None or host.uncancel() > 0:
                raise
        finally:
            self._host = None

    def give_up(self) -> None:
        """End a start that is under way; a second call changes nothing."""
        if self._host is not None and not self._given_up:
            self._given_up = True
            self._host.cancel()
