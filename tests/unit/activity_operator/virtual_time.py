"""An event loop in virtual time: the clock jumps to the next timer as soon as no callback is left to run."""

import asyncio
import selectors
from typing import Any


class _JumpingSelector:
    """A selector that never waits: where the loop would sleep, its clock is advanced instead."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._real = selectors.DefaultSelector()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or self._loop.threads:
            return self._real.select(timeout)
        ready = self._real.select(0)
        if not ready and timeout > 0:
            self._loop.elapsed += timeout
        return ready

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class VirtualLoop(asyncio.SelectorEventLoop):
    """`loop.time()` starts at 0 and advances only while every task waits for time and no thread works."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.threads = 0
        super().__init__(_JumpingSelector(self))  # type: ignore[arg-type]

    def time(self) -> float:
        return self.elapsed

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        self.threads += 1
        work = super().run_in_executor(executor, func, *args)
        work.add_done_callback(self._thread_done)
        return work

    def _thread_done(self, _: Any) -> None:
        self.threads -= 1

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        self.threads += 1
        await super().shutdown_default_executor()


def elapsed() -> float:
    """Return the seconds since the start of the test, by the running virtual loop."""
    return asyncio.get_running_loop().time()


def wall() -> float:
    """Return a Unix time that advances with the virtual clock."""
    return 1_000_000.0 + elapsed()


async def settle() -> None:
    """Run every task that does not wait for time."""
    for _ in range(50):
        await asyncio.sleep(0)
