"""Hearing of new instances at once: PostgreSQL's LISTEN; within one process an event; polling covers what is missed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from activity_worker.wire.taskstore import CHANNEL


@asynccontextmanager
async def announcements(engine: AsyncEngine, heard: asyncio.Event) -> AsyncIterator[None]:
    """Set `heard` whenever another process announces an instance; does nothing on SQLite."""
    if engine.dialect.name != "postgresql":
        yield
        return

    def notified(*_: Any) -> None:
        heard.set()

    async with engine.connect() as connection:
        raw = await connection.get_raw_connection()
        driver = raw.driver_connection
        assert driver is not None  # noqa: S101 - a connection that is open has one
        await driver.add_listener(CHANNEL, notified)
        try:
            yield
        finally:
            await driver.remove_listener(CHANNEL, notified)
