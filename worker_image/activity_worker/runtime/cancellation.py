"""The cancellation of a handler: its reason and its signal."""

import asyncio
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from activity_worker.errors import (
    CancellationRequestedError,
    DeadlineExceededError,
    TaskCancelledError,
    WorkerStoppedError,
)


class CancelReason(StrEnum):
    """Why a handler is cancelled."""

    #: The decider asks for it (Amazon SWF). The task is still ours, and the handler may finish it in any way.
    REQUESTED = "requested"
    #: The task timed out or does not exist, by the service's answer: the handler's result cannot count any more.
    LEASE_LOST = "lease-lost"
    #: The task's hard deadline has passed; the task is failed.
    DEADLINE = "deadline"
    #: The worker stops and its drain time-out is over; the task is failed, for the state machine's Retry.
    WORKER_STOPPED = "worker-stopped"


#: The error with which a cancelled task ends.
CANCELLATION_ERRORS: Final[Mapping[CancelReason, type[TaskCancelledError]]] = MappingProxyType(
    {
        CancelReason.REQUESTED: CancellationRequestedError,
        CancelReason.LEASE_LOST: TaskCancelledError,
        CancelReason.DEADLINE: DeadlineExceededError,
        CancelReason.WORKER_STOPPED: WorkerStoppedError,
    }
)


class CancellationSignal:
    """Tells a handler to end. `reason` is None until then; `detail` says more in words.

    `REQUESTED` asks the handler to end. Any other reason says that it must end, and takes the place of `REQUESTED`.

    `draining` tells that the worker takes no further task: a long handler may save its state and end early.
    `cancelled`, `reason`, `detail` and `draining` may be read from any thread; the rest belongs to the event loop.
    """

    __slots__ = ("_callbacks", "_drain_callbacks", "_event", "detail", "draining", "reason")

    def __init__(self) -> None:
        self.reason: CancelReason | None = None
        self.detail = ""
        self.draining = False
        self._callbacks: list[Callable[[], object]] = []
        self._drain_callbacks: list[Callable[[], object]] = []
        self._event: asyncio.Event | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the handler should end."""
        return self.reason is not None

    @property
    def must_end(self) -> bool:
        """Whether the handler's result cannot count any more: it is cancelled, and not by a request alone."""
        return self.reason not in {None, CancelReason.REQUESTED}

    async def wait(self) -> CancelReason:
        """Wait for the cancellation and return its reason."""
        if self.reason is None:
            if self._event is None:
                self._event = asyncio.Event()
            await self._event.wait()
        assert self.reason is not None  # noqa: S101 - set before the event is
        return self.reason

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Call `callback` in the event loop when the cancellation comes; at once if it has.

        It is called again when another reason takes the place of `REQUESTED`.
        """
        if self.reason is not None:
            callback()
        if not self.must_end:
            self._callbacks.append(callback)

    def on_draining(self, callback: Callable[[], object]) -> None:
        """Call `callback` in the event loop after each change of `draining`."""
        self._drain_callbacks.append(callback)

    def set_draining(self, on: bool) -> None:
        """Set `draining`. A drain may be taken back."""
        if self.draining is on:
            return
        self.draining = on
        for callback in self._drain_callbacks:
            callback()

    def cancel(self, reason: CancelReason, detail: str = "") -> bool:
        """Give the signal; the first reason stands, but for `REQUESTED`. Returns whether this was news."""
        if self.must_end or self.reason is reason:
            return False
        self.detail = detail
        self.reason = reason
        if self._event is not None:
            self._event.set()
        for callback in self._callbacks:
            callback()
        return True
