"""For handlers that are plain functions: a thread to run in, and the toolkit without `await`."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar

from activity_worker.runtime.cancellation import CancellationSignal, CancelReason

if TYPE_CHECKING:
    from activity_worker.events import EventEmitter
    from activity_worker.runtime.toolkit import TaskResponseToolkit
    from activity_worker.task import TaskResponse


class HandlerThread:
    """One thread, used again for every task of a slot.

    It is a daemon, so that a handler that never returns does not keep the process from ending.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="activity-handler", daemon=True).start()

    async def run(self, call: Callable[[], Any], signal: CancellationSignal) -> Any:
        """Return what `call` returned, or raise what it raised, whatever it was.

        Cancelled after `signal` was given, it still waits for the thread, which sees the signal only. Cancelled without
        it, by the end of the program, it leaves the thread alone.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        context = contextvars.copy_context()

        def settle(outcome: tuple[Any, BaseException | None]) -> None:
            if not ended.done():
                ended.set_result(outcome)

        def work() -> None:
            outcome: tuple[Any, BaseException | None]
            try:
                outcome = (context.run(call), None)
            except BaseException as error:  # noqa: BLE001 - a handler's SystemExit is its task's failure
                outcome = (None, error)
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, outcome)

        self._calls.put(work)
        await _wait_out(ended, signal)
        result, error = ended.result()
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """Let the thread end after what it does now."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (work := self._calls.get()) is not None:
            work()


async def _wait_out(ended: "asyncio.Future[Any]", signal: CancellationSignal) -> None:
    cancelled: asyncio.CancelledError | None = None
    while not ended.done():
        try:
            await asyncio.wait((ended,))
        except asyncio.CancelledError as error:
            if not signal.cancelled:
                raise
            cancelled = error
    # What a handler that was only asked to end returned or raised counts.
    if cancelled is not None and signal.must_end:
        raise cancelled


class BlockingSignal:
    """The cancellation signal for a thread: `cancelled`, `reason`, `detail`, and `wait` that blocks."""

    def __init__(self, signal: CancellationSignal, loop: asyncio.AbstractEventLoop) -> None:
        self._signal = signal
        self._loop = loop
        self._event: threading.Event | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the handler should end."""
        return self._signal.cancelled

    @property
    def reason(self) -> CancelReason | None:
        """Why; None while it should not."""
        return self._signal.reason

    @property
    def detail(self) -> str:
        """More in words."""
        return self._signal.detail

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the cancellation (None: for ever) and tell whether it came. A better `time.sleep` for handlers."""
        if self._event is None:
            self._event = threading.Event()
            self._loop.call_soon_threadsafe(self._signal.on_cancel, self._event.set)
        return self._event.wait(timeout_seconds)


class BlockingToolkit:
    """The toolkit for a plain function: the same calls, each returning when it is done."""

    #: What a handler's parameter with this annotation gets.
    __activity_role__: ClassVar[str] = "toolkit"

    def __init__(self, respond: "TaskResponseToolkit") -> None:
        self._respond = respond
        self._loop = asyncio.get_running_loop()
        self.signal = BlockingSignal(respond.signal, self._loop)

    @property
    def events(self) -> "EventEmitter":
        """The worker's events; listeners are called in the event loop, not in this thread."""
        return self._respond.events

    @property
    def response(self) -> "TaskResponse | None":
        """The answer that the service accepted; None before."""
        return self._respond.response

    def heartbeat(self, details: Any = None) -> None:
        """See `TaskResponseToolkit.heartbeat`."""
        self._wait(self._respond.heartbeat(details))

    def success(self, output: Any = None) -> None:
        """See `TaskResponseToolkit.success`."""
        self._wait(self._respond.success(output))

    def failure(self, error: str = "", cause: str = "") -> None:
        """See `TaskResponseToolkit.failure`."""
        self._wait(self._respond.failure(error, cause))

    def confirm_cancellation(self, details: str = "") -> None:
        """See `TaskResponseToolkit.confirm_cancellation`."""
        self._wait(self._respond.confirm_cancellation(details))

    def _wait(self, call: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(call, self._loop).result()
