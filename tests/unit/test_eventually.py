"""The one way in which tests wait: what it returns, what it says when it gives up, and when it gives up."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from tests.eventually import LEAST_LOOKS, NotInTimeError, consistently, eventually, eventually_sync


async def test_the_first_truthy_value_is_returned() -> None:
    values = iter([None, 0, "", "three"])

    assert await eventually("a word comes", lambda: next(values), every_seconds=0) == "three"


async def test_a_check_may_be_a_coroutine_function() -> None:
    values = iter([None, 4])

    async def look() -> int | None:
        return next(values)

    assert await eventually("a number comes", look, every_seconds=0) == 4


def test_a_synchronous_test_waits_in_the_same_way() -> None:
    values = iter([[], ["a"]])

    assert eventually_sync("a list is filled", lambda: next(values), every_seconds=0) == ["a"]


async def test_the_failure_says_what_was_awaited_and_what_was_seen() -> None:
    looks = _alternating()

    def look() -> list[str]:
        if next(looks):
            raise ConnectionError("refused")
        return []

    with pytest.raises(NotInTimeError) as failure:
        await eventually(
            "pods exist", look, seconds=0.2, every_seconds=0.01, tolerate=(OSError,), details=lambda: "two nodes"
        )

    said = str(failure.value)
    assert said.startswith("not within 0.2 s: pods exist; ")
    assert " looks in 0." in said
    assert "the last look gave []; the last exception of a look was ConnectionError('refused'); seen: two nodes" in said


def test_the_synchronous_failure_says_the_same() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.1 s: pods exist; \d+ looks in .*; the last look gave 0$"):
        eventually_sync("pods exist", lambda: 0, seconds=0.1, every_seconds=0.01)


def test_details_that_fail_do_not_hide_the_failure() -> None:
    def details() -> object:
        raise KeyError("items")

    with pytest.raises(NotInTimeError, match=r"^not within 0\.1 s: pods exist; .*; the details failed with KeyError"):
        eventually_sync("pods exist", lambda: 0, seconds=0.1, every_seconds=0.01, details=details)


async def test_an_exception_that_the_caller_does_not_name_ends_the_wait() -> None:
    def look() -> bool:
        raise KeyError("status")

    with pytest.raises(KeyError):
        await eventually("a status exists", look, tolerate=(OSError,))
    with pytest.raises(KeyError):
        eventually_sync("a status exists", look, tolerate=(OSError,))


async def test_the_time_out_of_a_look_itself_is_an_exception_of_the_look() -> None:
    async def look() -> bool:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        await eventually("an answer comes", look)


@pytest.mark.parametrize("tolerate", [(), (TimeoutError,)])
async def test_a_look_that_never_ends_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch, tolerate: tuple[type[Exception], ...]
) -> None:
    monkeypatch.setattr("tests.eventually.LOOK_SECONDS", 0.05)

    async def look() -> bool:
        await asyncio.Event().wait()
        return True

    with pytest.raises(NotInTimeError, match="an answer comes; a look did not end"):
        await eventually("an answer comes", look, seconds=0.01, tolerate=tolerate)


def test_a_machine_that_stalls_costs_one_look() -> None:
    looks = 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            time.sleep(0.4)
        return looks == LEAST_LOOKS - 1

    eventually_sync("the condition holds after the stall", look, seconds=0.2, every_seconds=0.001)


def test_a_pause_that_is_long_by_wish_counts_in_full() -> None:
    began = time.monotonic()
    with pytest.raises(NotInTimeError, match="; 2 looks in "):
        eventually_sync("it never holds", lambda: False, seconds=0.2, every_seconds=0.1)
    assert time.monotonic() - began >= 0.2


async def test_a_condition_that_stays_true_is_looked_at_until_the_end() -> None:
    began, looks = time.monotonic(), 0

    async def look() -> bool:
        nonlocal looks
        looks += 1
        return True

    await consistently("it holds", look, seconds=0.1, every_seconds=0.01)

    assert time.monotonic() - began >= 0.1
    assert looks >= 2


async def test_a_condition_that_does_not_stay_true_fails_with_what_was_seen() -> None:
    values = iter([1, 1, 0])

    with pytest.raises(
        AssertionError, match=r"^not for 60 s: a pod exists; look 3, after 0\.\d s, gave 0; seen: a node$"
    ):
        await consistently("a pod exists", lambda: next(values), seconds=60, every_seconds=0, details=lambda: "a node")


def _alternating() -> Iterator[bool]:
    while True:
        yield True
        yield False
