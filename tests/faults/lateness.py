"""Measures how late this machine runs while a test measures the operator."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

#: Seconds between two beats.
BEAT_SECONDS = 0.1


@dataclass
class Lateness:
    """The lateness of each beat: when it came, in Unix seconds, and by how many seconds it was late."""

    late: list[tuple[float, float]] = field(default_factory=list)

    def late_until(self, moment: float) -> float:
        """Return the sum of all lateness up to a moment, in seconds."""
        return sum(late for at, late in self.late if at <= moment)

    async def run(self) -> None:
        """Beat until cancelled."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            now = time.monotonic()
            self.late.append((time.time(), max(now - last - BEAT_SECONDS, 0.0)))
            last = now


@asynccontextmanager
async def measured_lateness() -> AsyncIterator[Lateness]:
    """Measure in the background, so that lateness of the machine is not counted against the operator."""
    lateness = Lateness()
    task = asyncio.create_task(lateness.run())
    try:
        yield lateness
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
