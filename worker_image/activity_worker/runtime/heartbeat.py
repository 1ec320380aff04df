"""Task heartbeats at an interval, whatever the handler does, and those that the handler asks for."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from activity_worker.errors import InvalidTokenError, LeaseLostError, SourceError, UnreachableError
from activity_worker.wire.backoff import pause_after

_log = logging.getLogger(__name__)

#: The first pause after a heartbeat that was not accepted; it doubles up to the interval.
RETRY_FIRST_SECONDS: Final = 0.5
#: Heartbeats asked for without waiting are sent once in this time at most: the ones in between become one.
COALESCE_SECONDS: Final = 1.0
#: How much of its interval the first heartbeat may come early. Tasks leased together would otherwise heartbeat together
#: for as long as they run: a thousand at once, then silence.
EARLY_SHARE: Final = 0.5


def first_after(interval_seconds: float) -> float:
    """Return when a task's first heartbeat is due: by chance somewhere in the second half of the interval."""
    return interval_seconds * (1 - EARLY_SHARE * random.random())  # noqa: S311 - a spread, not a secret


@dataclass(frozen=True, slots=True)
class HeartbeatListener:
    """What happens with a heartbeat: accepted, not accepted (for any reason), or the lease is lost.

    `cancel_requested` is called after each accepted heartbeat whose answer asks for the task's cancellation.
    """

    accepted: Callable[[], object]
    failed: Callable[[SourceError], object]
    lost: Callable[[LeaseLostError], object]
    cancel_requested: Callable[[], object] = lambda: None


#: Sends one heartbeat. Returns whether the cancellation of the task is requested, None where a source cannot ask.
SendHeartbeat = Callable[[], Awaitable[bool | None]]


class HeartbeatLoop:
    """The heartbeats of one task. Until the first is due it costs one timer.

    `InvalidToken` ends them and nothing else. Other trouble is tried again, sooner than the interval. One call is in
    flight at most; one that takes longer than the interval counts as unanswered.
    """

    __slots__ = (
        "_failures",
        "_flight",
        "_interval",
        "_listener",
        "_loop",
        "_on",
        "_send_now",
        "_sent",
        "_timer",
    )

    def __init__(self, send: SendHeartbeat, interval_seconds: float, listener: HeartbeatListener) -> None:
        self._send_now = send
        self._interval = interval_seconds
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._flight: asyncio.Task[LeaseLostError | None] | None = None
        self._on = False
        self._failures = 0
        self._sent = float("-inf")

    def start(self, first_after_seconds: float | None = None) -> None:
        """Begin; by default the first heartbeat is due within the interval, spread (`first_after`)."""
        self._on = True
        first = first_after(self._interval) if first_after_seconds is None else first_after_seconds
        self._timer = self._loop.call_later(first, self._due)

    def stop(self) -> None:
        """End them. One in flight is left alone: its answer means nothing any more."""
        self._on = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def beat(self) -> None:
        """Send one now, or wait for the one in flight. Raises `LeaseLostError`."""
        lost = await asyncio.shield(self._send())
        if lost is not None:
            raise lost

    def soon(self) -> None:
        """Send one without waiting for it; many within a second become one."""
        wait = self._sent + COALESCE_SECONDS - self._loop.time()
        if self._on and self._flight is None:
            if wait <= 0:
                self._due()
            elif self._timer is not None and self._timer.when() > self._loop.time() + wait:
                self._schedule(wait)

    def _due(self) -> None:
        self._schedule(self._interval)
        self._send()

    def _schedule(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._due)

    def _send(self) -> "asyncio.Task[LeaseLostError | None]":
        if self._flight is None:
            self._sent = self._loop.time()
            self._flight = self._loop.create_task(self._call())
            self._flight.add_done_callback(self._landed)
        return self._flight

    def _landed(self, _: object) -> None:
        self._flight = None

    async def _call(self) -> LeaseLostError | None:
        try:
            async with asyncio.timeout(max(self._interval, COALESCE_SECONDS)):
                requested = await self._send_now()
        except LeaseLostError as error:
            return self._lost(error)
        except InvalidTokenError as error:
            _log.debug("the source does not know the token of a heartbeat; heartbeats for this task end")
            self._failed(error)
            self.stop()
        except TimeoutError:
            self._again(UnreachableError("HeartbeatTimeout", "no answer within the interval"))
        except SourceError as error:
            self._again(error)
        except Exception as error:  # noqa: BLE001 - a source's mistake must not end the heartbeats
            _log.exception("a task heartbeat failed in an unforeseen way; it is tried again")
            self._again(UnreachableError(type(error).__name__))
        else:
            self._failures = 0
            self._listener.accepted()
            if requested:
                self._listener.cancel_requested()
        return None

    def _lost(self, error: LeaseLostError) -> LeaseLostError:
        if self._on:
            self.stop()
            self._listener.failed(error)
            self._listener.lost(error)
        return error

    def _failed(self, error: SourceError) -> None:
        if self._on:
            self._listener.failed(error)

    def _again(self, error: SourceError) -> None:
        self._failed(error)
        if self._on:
            self._failures += 1
            pause = pause_after(self._failures, first_seconds=RETRY_FIRST_SECONDS, max_seconds=self._interval)
            self._schedule(pause)
