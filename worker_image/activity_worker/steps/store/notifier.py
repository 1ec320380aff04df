"""News of instances: PostgreSQL's LISTEN, and a `Notifier` within one process. Polling finds what both miss."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from activity_worker.wire.taskstore import CHANNEL


class Notifier:
    """Wakes waiters. Notifications are counted, so a waiter that was busy when one came does not miss it."""

    def __init__(self) -> None:
        self.notifications = 0
        self._next: asyncio.Future[None] | None = None

    def notify(self) -> None:
        """Wake every waiter."""
        self.notifications += 1
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    async def wait(self, heard: int, seconds: float) -> None:
        """Return when there are more notifications than `heard`, or after `seconds`."""
        if self.notifications > heard:
            return
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._next)


log = logging.getLogger(__name__)

#: Seconds before a listener that lost its connection tries another one.
AGAIN_SECONDS = 1.0


@asynccontextmanager
async def announcements(engine: AsyncEngine, notifier: Notifier) -> AsyncIterator[None]:
    """Notify `notifier` whenever another process announces an instance. Does nothing on SQLite."""
    if engine.dialect.name != "postgresql":
        yield
        return
    listening = asyncio.Event()
    listener = asyncio.create_task(_listen_on(engine, notifier, listening))
    try:
        await listening.wait()
        yield
    finally:
        listener.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listener


async def _listen_on(engine: AsyncEngine, notifier: Notifier, listening: asyncio.Event) -> None:
    """Listen for ever, on another connection when one is lost; what was announced between is found by polling."""
    while True:
        try:
            await _listen(engine, notifier, listening)
        except (SQLAlchemyError, OSError):
            log.warning("the task store's announcements are not heard, again in %g s", AGAIN_SECONDS)
        listening.set()
        await asyncio.sleep(AGAIN_SECONDS)


async def _listen(engine: AsyncEngine, notifier: Notifier, listening: asyncio.Event) -> None:
    lost = asyncio.Event()

    def notified(*_: Any) -> None:
        notifier.notify()

    def ended(*_: Any) -> None:
        lost.set()

    async with engine.connect() as connection:
        raw = await connection.get_raw_connection()
        driver = raw.driver_connection
        assert driver is not None  # noqa: S101 - a connection that is open has one
        driver.add_termination_listener(ended)
        await driver.add_listener(CHANNEL, notified)
        # Once it listens, what was announced before is looked for too.
        notifier.notify()
        listening.set()
        try:
            await lost.wait()
            await connection.invalidate()
        finally:
            driver.remove_termination_listener(ended)
            if not driver.is_closed():
                await driver.remove_listener(CHANNEL, notified)
