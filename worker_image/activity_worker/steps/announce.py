"""Hearing of new instances at once: PostgreSQL's LISTEN; within one process a bell; polling covers what is missed."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from activity_worker.steps.bell import Bell
from activity_worker.wire.taskstore import CHANNEL

log = logging.getLogger(__name__)

#: Seconds before a listener that lost its connection tries another one.
AGAIN_SECONDS = 1.0


@asynccontextmanager
async def announcements(engine: AsyncEngine, bell: Bell) -> AsyncIterator[None]:
    """Ring whenever another process announces an instance; does nothing on SQLite. It listens when this is entered."""
    if engine.dialect.name != "postgresql":
        yield
        return
    listening = asyncio.Event()
    listener = asyncio.create_task(_listen_on(engine, bell, listening))
    try:
        await listening.wait()
        yield
    finally:
        listener.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listener


async def _listen_on(engine: AsyncEngine, bell: Bell, listening: asyncio.Event) -> None:
    """Listen for ever, on another connection when one is lost; what was announced between is found by polling."""
    while True:
        try:
            await _listen(engine, bell, listening)
        except (SQLAlchemyError, OSError):
            log.warning("the task store's announcements are not heard, again in %g s", AGAIN_SECONDS)
        listening.set()
        await asyncio.sleep(AGAIN_SECONDS)


async def _listen(engine: AsyncEngine, bell: Bell, listening: asyncio.Event) -> None:
    lost = asyncio.Event()

    def notified(*_: Any) -> None:
        bell.ring()

    def ended(*_: Any) -> None:
        lost.set()

    async with engine.connect() as connection:
        raw = await connection.get_raw_connection()
        driver = raw.driver_connection
        assert driver is not None  # noqa: S101 - a connection that is open has one
        driver.add_termination_listener(ended)
        await driver.add_listener(CHANNEL, notified)
        # Once it listens, what was announced before is looked for too.
        bell.ring()
        listening.set()
        try:
            await lost.wait()
            await connection.invalidate()
        finally:
            driver.remove_termination_listener(ended)
            if not driver.is_closed():
                await driver.remove_listener(CHANNEL, notified)
