"""How late this machine is: a beat beside what is measured."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

#: Seconds between two beats.
BEAT_SECONDS = 0.1


@dataclass
class Beat:
    """How late the machine was: of each beat when it came, in Unix seconds, and how many seconds after its time."""

    late: list[tuple[float, float]] = field(default_factory=list)

    def late_until(self, moment: float) -> float:
        """Return all lateness up to a moment, in seconds."""
        return sum(late for at, late in self.late if at <= moment)

    async def run(self) -> None:
        """Beat, until cancelled."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            now = time.monotonic()
            self.late.append((time.time(), max(now - last - BEAT_SECONDS, 0.0)))
            last = now


@asynccontextmanager
async def beating() -> AsyncIterator[Beat]:
    """Beat beside what is measured: what this machine did not do in time is not the operator's lateness."""
    beat = Beat()
    task = asyncio.create_task(beat.run())
    try:
        yield beat
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
