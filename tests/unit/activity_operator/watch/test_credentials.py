"""The credentials that kopf gets, and when: it asks at once whenever the API server refused it."""

import asyncio
import functools
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from activity_operator.watch.credentials import (
    ACCEPTED_SECONDS,
    RETRY_CAP_SECONDS,
    RETRY_FIRST_SECONDS,
    CredentialsReader,
)
from tests.unit.activity_operator.virtual_time import VirtualLoop, elapsed


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on a loop in virtual time."""

    @functools.wraps(test)
    def run() -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test())

    return run


class File:
    """A token file, with its loader."""

    def __init__(self) -> None:
        self.token = "first"
        self.broken = False
        self.reads = 0

    async def load(self, configuration: Any) -> None:
        self.reads += 1
        if self.broken:
            raise OSError("half written")
        configuration.api_key["BearerToken"] = f"Bearer {self.token}"


@virtual
async def test_refused_token_is_returned_with_growing_pauses() -> None:
    login = CredentialsReader(File().load, jitter=lambda: 1.0)
    returned_at = []
    for _ in range(7):
        await login()
        returned_at.append(elapsed())

    gaps = [later - sooner for sooner, later in itertools.pairwise(returned_at)]
    assert gaps == [1.0, 2.0, 4.0, 8.0, RETRY_CAP_SECONDS, RETRY_CAP_SECONDS]


@virtual
async def test_new_token_is_returned_as_soon_as_it_is_in_the_file() -> None:
    file = File()
    login = CredentialsReader(file.load, jitter=lambda: 1.0)
    for _ in range(5):
        await login()
    asked_at = elapsed()
    asyncio.get_running_loop().call_later(3.5, setattr, file, "token", "second")

    assert ((await login()).token, elapsed() - asked_at) == ("second", 4.0)
    file.token, asked_at = "third", elapsed()
    assert ((await login()).token, elapsed() - asked_at) == ("third", 0.0)


@virtual
async def test_pauses_start_again_with_a_new_token() -> None:
    file = File()
    login = CredentialsReader(file.load, jitter=lambda: 1.0)
    for token in ("first", "first", "first", "second"):
        file.token = token
        await login()
    asked_at = elapsed()
    await login()

    assert elapsed() - asked_at == RETRY_FIRST_SECONDS


@virtual
async def test_login_after_a_long_good_one_is_answered_at_once() -> None:
    login = CredentialsReader(File().load, jitter=lambda: 1.0)
    await login()
    await asyncio.sleep(ACCEPTED_SECONDS)
    asked_at = elapsed()

    assert ((await login()).token, elapsed() - asked_at) == ("first", 0.0)


@virtual
async def test_unreadable_file_costs_one_pause() -> None:
    file = File()
    login = CredentialsReader(file.load, jitter=lambda: 1.0)
    await login()
    file.broken = True

    assert ((await login()).token, elapsed()) == ("first", RETRY_FIRST_SECONDS)


@virtual
async def test_unreadable_file_at_the_first_login_is_an_error() -> None:
    file = File()
    file.broken = True

    with pytest.raises(OSError, match="half written"):
        await CredentialsReader(file.load)()
