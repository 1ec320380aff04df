"""An event loop whose clock jumps to the next timer as soon as nothing is left to run: an hour passes in no time."""

import asyncio
import selectors
from typing import Any


class _JumpingSelector:
    """Asks the real selector without waiting; where the loop would have slept, its clock is set forward instead."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._real = selectors.DefaultSelector()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            return self._real.select(None)
        ready = self._real.select(0)
        if not ready and timeout > 0:
            self._loop.elapsed += timeout
        return ready

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class VirtualLoop(asyncio.SelectorEventLoop):
    """`loop.time()` starts at 0 and moves only when every task waits for time."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        super().__init__(_JumpingSelector(self))  # type: ignore[arg-type]

    def time(self) -> float:
        return self.elapsed


def elapsed() -> float:
    """Return the seconds since the test began, by the running virtual loop."""
    return asyncio.get_running_loop().time()


def wall() -> float:
    """Return a Unix time that moves with the virtual clock."""
    return 1_000_000.0 + elapsed()


async def settle() -> None:
    """Let everything run that does not wait for time."""
    for _ in range(50):
        await asyncio.sleep(0)
