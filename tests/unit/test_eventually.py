"""`eventually`: its return value, its error message and its time limits."""

import asyncio
import re
import time
from collections.abc import Iterator

import pytest

from tests.eventually import LEAST_LOOKS, NotInTimeError, consistently, eventually, eventually_sync


async def test_first_truthy_value_is_returned() -> None:
    values = iter([None, 0, "", "three"])

    assert await eventually("a word comes", lambda: next(values), every_seconds=0) == "three"


async def test_check_may_be_a_coroutine_function() -> None:
    values = iter([None, 4])

    async def look() -> int | None:
        return next(values)

    assert await eventually("a number comes", look, every_seconds=0) == 4


def test_synchronous_wait_returns_the_first_truthy_value() -> None:
    values = iter([[], ["a"]])

    assert eventually_sync("a list is filled", lambda: next(values), every_seconds=0) == ["a"]


async def test_failure_names_the_condition_and_the_last_observations() -> None:
    looks = _alternating()

    def look() -> list[str]:
        if next(looks):
            raise ConnectionError("refused")
        return []

    with pytest.raises(NotInTimeError) as failure:
        await eventually(
            "pods exist", look, seconds=0.2, every_seconds=0.01, tolerate=(OSError,), details=lambda: "two nodes"
        )

    text = str(failure.value)
    assert text.startswith("not within 0.2 s: pods exist; ")
    assert re.search(r" looks in \d+\.\d s; ", text)
    assert "the last look gave []; the last exception of a look was ConnectionError('refused'); seen: two nodes" in text


def test_synchronous_failure_has_the_same_message() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.1 s: pods exist; \d+ looks in .*; the last look gave 0$"):
        eventually_sync("pods exist", lambda: 0, seconds=0.1, every_seconds=0.01)


def test_details_that_fail_do_not_hide_the_failure() -> None:
    def details() -> object:
        raise KeyError("items")

    with pytest.raises(NotInTimeError, match=r"^not within 0\.1 s: pods exist; .*; the details failed with KeyError"):
        eventually_sync("pods exist", lambda: 0, seconds=0.1, every_seconds=0.01, details=details)


async def test_exception_that_is_not_tolerated_ends_the_wait() -> None:
    def look() -> bool:
        raise KeyError("status")

    with pytest.raises(KeyError):
        await eventually("a status exists", look, tolerate=(OSError,))
    with pytest.raises(KeyError):
        eventually_sync("a status exists", look, tolerate=(OSError,))


async def test_timeout_error_of_a_check_is_raised_unchanged() -> None:
    async def look() -> bool:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        await eventually("an answer comes", look)


@pytest.mark.parametrize("tolerate", [(), (TimeoutError,)])
async def test_check_that_never_returns_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch, tolerate: tuple[type[Exception], ...]
) -> None:
    monkeypatch.setattr("tests.eventually.LOOK_SECONDS", 0.05)

    async def look() -> bool:
        await asyncio.Event().wait()
        return True

    with pytest.raises(NotInTimeError, match="an answer comes; a look did not end"):
        await eventually("an answer comes", look, seconds=0.01, tolerate=tolerate)


def test_stalled_machine_costs_only_one_look() -> None:
    looks = 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            time.sleep(0.4)
        return looks == LEAST_LOOKS - 1

    eventually_sync("the condition holds after the stall", look, seconds=0.2, every_seconds=0.001)


def test_long_pause_between_looks_counts_in_full() -> None:
    began = time.monotonic()
    with pytest.raises(NotInTimeError, match="; 2 looks in "):
        eventually_sync("it never holds", lambda: False, seconds=0.2, every_seconds=0.1)
    assert time.monotonic() - began >= 0.2


async def test_consistently_checks_a_true_condition_until_the_end() -> None:
    began, looks = time.monotonic(), 0

    async def look() -> bool:
        nonlocal looks
        looks += 1
        return True

    await consistently("it holds", look, seconds=0.1, every_seconds=0.01)

    assert time.monotonic() - began >= 0.1
    assert looks >= 2


async def test_consistently_fails_with_the_first_false_value() -> None:
    values = iter([1, 1, 0])

    with pytest.raises(
        AssertionError, match=r"^not for 60 s: a pod exists; look 3, after 0\.\d s, gave 0; seen: a node$"
    ):
        await consistently("a pod exists", lambda: next(values), seconds=60, every_seconds=0, details=lambda: "a node")


def _alternating() -> Iterator[bool]:
    while True:
        yield True
        yield False
