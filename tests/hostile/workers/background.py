"""An event loop in a thread: the control plane and honest workers run there while tests attack with plain sockets."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

T = TypeVar("T")
CALL_SECONDS = 180.0


class Background:
    """A running loop. Its child processes die with its thread, so one thread serves a whole session."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="background", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(CALL_SECONDS)

    def enter(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enter a context there; `leave` leaves it."""
        return self.do(context.__aenter__())

    def leave(self, context: AbstractAsyncContextManager[Any]) -> None:
        """Leave a context there."""
        self.do(_leave(context))

    def stop(self) -> None:
        """End the loop and the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10.0)
        self.loop.close()


async def _leave(context: AbstractAsyncContextManager[Any]) -> None:
    await context.__aexit__(None, None, None)
