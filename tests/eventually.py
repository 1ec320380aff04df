"""The one way in which a test waits: `eventually` until a condition is true, `consistently` while it stays true."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

#: Seconds that a condition has by default: enough for a process to start on a crowded machine, and so few that the
#: failure comes before pytest-timeout ends the test after 120 s.
SECONDS = 90.0
#: Seconds between two looks by default.
EVERY_SECONDS = 0.05
#: The least number of looks before a wait gives up, unless the pauses between them alone take longer.
LEAST_LOOKS = 20
#: Seconds that one asynchronous look may take at least, however short the wait is.
LOOK_SECONDS = 30.0


class NotInTimeError(AssertionError):
    """A condition did not become true in time."""


@overload
async def eventually(
    what: str,
    check: Callable[[], Awaitable[T | None]],
    *,
    seconds: float = SECONDS,
    every_seconds: float = EVERY_SECONDS,
    tolerate: tuple[type[Exception], ...] = (),
    details: Callable[[], object] | None = None,
) -> T: ...


@overload
async def eventually(
    what: str,
    check: Callable[[], T | None],
    *,
    seconds: float = SECONDS,
    every_seconds: float = EVERY_SECONDS,
    tolerate: tuple[type[Exception], ...] = (),
    details: Callable[[], object] | None = None,
) -> T: ...


async def eventually(
    what: str,
    check: Callable[[], Any],
    *,
    seconds: float = SECONDS,
    every_seconds: float = EVERY_SECONDS,
    tolerate: tuple[type[Exception], ...] = (),
    details: Callable[[], object] | None = None,
) -> Any:
    """Call `check` until it gives something truthy, and return that.

    Args:
        what: the condition, as the failure shows it ("the pool has two workers").
        check: looks once; may be a coroutine function.
        seconds: how long to wait. The time is counted as `_Wait` says, so a machine that stalls fails no test.
        every_seconds: the pause between two looks.
        tolerate: exceptions of a look after which the next look follows. Any other exception ends the wait.
        details: called for the failure, which shows what it returns.

    Raises:
        NotInTimeError: `check` gave nothing truthy in time, or one look took longer than `seconds` and LOOK_SECONDS.
    """
    clock = asyncio.get_running_loop().time
    wait = _Wait(what, seconds, every_seconds, details)
    while True:
        began = clock()
        try:
            async with asyncio.timeout(max(seconds, LOOK_SECONDS)) as limit:
                value = check()
                if inspect.isawaitable(value):
                    value = await value
            if wait.saw(value):
                return value
        except tolerate as error:
            if limit.expired():
                raise wait.failure("a look did not end") from error
            wait.failed(error)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise wait.failure("a look did not end") from error
        await asyncio.sleep(every_seconds)
        wait.count(clock() - began)


def eventually_sync(
    what: str,
    check: Callable[[], T | None],
    *,
    seconds: float = SECONDS,
    every_seconds: float = EVERY_SECONDS,
    tolerate: tuple[type[Exception], ...] = (),
    details: Callable[[], object] | None = None,
) -> T:
    """Do what `eventually` does, for synchronous tests. A look that never ends is left to pytest-timeout."""
    wait = _Wait(what, seconds, every_seconds, details)
    while True:
        began = time.monotonic()
        try:
            value = check()
            if wait.saw(value):
                assert value is not None
                return value
        except tolerate as error:
            wait.failed(error)
        time.sleep(every_seconds)
        wait.count(time.monotonic() - began)


async def consistently(
    what: str,
    check: Callable[[], Any],
    *,
    seconds: float,
    every_seconds: float = EVERY_SECONDS,
    details: Callable[[], object] | None = None,
) -> None:
    """Look for some seconds, and once more at their end, whether a condition stays true.

    Args:
        what: the condition, as the failure shows it ("the Deployment has no replicas").
        check: looks once; may be a coroutine function.
        seconds: how long the condition must stay true.
        every_seconds: the pause between two looks.
        details: called for the failure, which shows what it returns.

    Raises:
        AssertionError: a look gave nothing truthy. It says which look, and what it gave.
    """
    clock = asyncio.get_running_loop().time
    began, looks = clock(), 0
    while True:
        last = clock() - began >= seconds
        value = check()
        if inspect.isawaitable(value):
            value = await value
        looks += 1
        if not value:
            look = f"look {looks}, after {clock() - began:.1f} s, gave {value!r}"
            raise AssertionError("; ".join([f"not for {seconds:g} s: {what}", look, *_seen(details)]))
        if last:
            return
        await asyncio.sleep(every_seconds)


class _Wait:
    """One wait: what was seen, and how much of its time is used up.

    A round is a look and the pause after it. However long it lasted, a round counts for at most a twentieth of the
    time (LEAST_LOOKS), or for the pause if that is longer. A machine that stalls for 10 s therefore costs a wait one
    round, and the wait ends only after the condition was looked at often enough.
    """

    def __init__(self, what: str, seconds: float, every_seconds: float, details: Callable[[], object] | None) -> None:
        self._what = what
        self._seconds = seconds
        self._round_seconds = max(seconds / LEAST_LOOKS, every_seconds)
        self._details = details
        self._used = 0.0
        self._lasted = 0.0
        self._looks = 0
        self._last: object = None
        self._error: Exception | None = None

    def saw(self, value: object) -> bool:
        """Note what a look gave; whether it is the condition."""
        self._looks += 1
        self._last = value
        return bool(value)

    def failed(self, error: Exception) -> None:
        """Note an exception that the caller tolerates."""
        self._looks += 1
        self._error = error

    def count(self, lasted: float) -> None:
        """Count a round of `lasted` seconds; raises NotInTimeError when the time is used up."""
        self._lasted += lasted
        self._used += min(lasted, self._round_seconds)
        if self._used >= self._seconds:
            raise self.failure() from self._error

    def failure(self, why: str = "") -> NotInTimeError:
        """Return the error that says what was awaited and what was seen."""
        parts = [f"not within {self._seconds:g} s: {self._what}", *([why] if why else [])]
        parts.append(f"{self._looks} looks in {self._lasted:.1f} s")
        parts.append(f"the last look gave {self._last!r}")
        if self._error is not None:
            parts.append(f"the last exception of a look was {self._error!r}")
        return NotInTimeError("; ".join([*parts, *_seen(self._details)]))


def _seen(details: Callable[[], object] | None) -> list[str]:
    """Return the last part of a failure, which is raised even if its details cannot be had."""
    if details is None:
        return []
    try:
        return [f"seen: {details()}"]
    except Exception as error:  # noqa: BLE001 - what failed is the wait, not its details
        return [f"the details failed with {error!r}"]
