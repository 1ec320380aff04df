"""Waiting for what other processes do."""

import asyncio
from collections.abc import Awaitable, Callable

PATIENCE_SECONDS = 60.0


async def until(
    what: str, holds: Callable[[], bool | Awaitable[bool]], seconds: float = PATIENCE_SECONDS, every: float = 0.1
) -> None:
    """Wait until something holds; raises TimeoutError that names it."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                found = holds()
                if found if isinstance(found, bool) else await found:
                    return
                await asyncio.sleep(every)
    except TimeoutError:
        raise TimeoutError(f"not within {seconds:g} s: {what}") from None
