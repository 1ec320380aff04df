"""Standing by: the free slots wait for leases that the operator offers, and open no poll of their own.

The operator orders it with each reply, so that most idle workers can leave without waiting for the end of a poll. A
worker that hears no such order for a while polls again: no task may depend on the operator.
"""

import asyncio
import logging

from activity_worker.contract import Directive
from activity_worker.runtime.slot_pool import SlotPool

#: Report intervals, and least seconds, after which a worker without a new order to stand by polls again.
RESUME_INTERVALS, RESUME_SECONDS = 3.0, 10.0

log = logging.getLogger(__name__)


class StandBy:
    """Lets the slots of `pool` stand by for a bounded time."""

    def __init__(self, pool: SlotPool) -> None:
        self._pool = pool
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, directive: Directive, interval_seconds: float) -> None:
        """Obey the directive of a reply, after which `interval_seconds` pass until the next report.

        A directive to keep the state changes nothing, and it is no new order to stand by.
        """
        if directive is Directive.STANDBY:
            self._cancel()
            seconds = max(RESUME_INTERVALS * interval_seconds, RESUME_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._resume, seconds)
            self._pool.stand_by(True)
        elif directive is not Directive.KEEP:
            self._end()

    def _end(self) -> None:
        self._cancel()
        self._pool.stand_by(False)

    def _resume(self, seconds: float) -> None:
        log.warning("the operator has not repeated its order to stand by for %g s: polling again", seconds)
        self._end()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
