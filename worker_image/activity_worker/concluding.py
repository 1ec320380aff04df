"""Answers to the service are tried again until it takes them or says that the task is over."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from activity_worker.errors import SourceError

FIRST_PAUSE_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 30.0


async def conclude(
    send: Callable[[], Awaitable[None]],
    *,
    lost: Callable[[], SourceError | None],
    for_seconds: float,
    spread: Callable[[], float] = random.random,
) -> None:
    """Call `send` until it succeeds; raises its last `SourceError`.

    Throttling, silence, faults of the service and lacking credentials are tried again, with pauses that double up to
    30 s, for `for_seconds` at most. Any other answer ends it, and so does `lost`: what a task heartbeat has learnt
    meanwhile.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return await send()
        except SourceError as error:
            wait = pause * (0.5 + spread() / 2)
            if not error.retryable or loop.time() - started + wait > for_seconds:
                raise
        await asyncio.sleep(wait)
        gone = lost()
        if gone is not None:
            raise gone
        pause = min(pause * 2, MAX_PAUSE_SECONDS)
