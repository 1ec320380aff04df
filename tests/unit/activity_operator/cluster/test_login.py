"""Which credentials kopf is given, and when: it asks again at once whenever it was refused."""

import asyncio
import functools
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from activity_operator.cluster.login import GOOD_SECONDS, PAUSES, Login
from tests.unit.activity_operator.virtual_time import VirtualLoop, elapsed


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on a loop whose clock jumps."""

    @functools.wraps(test)
    def run() -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test())

    return run


class File:
    """A token's file, read by a loader."""

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
async def test_a_token_that_stays_refused_is_given_again_ever_later() -> None:
    login = Login(File().load)
    given = []
    for _ in range(7):
        await login()
        given.append(elapsed())

    gaps = [later - sooner for sooner, later in itertools.pairwise(given)]
    assert gaps == [*PAUSES, PAUSES[-1], PAUSES[-1]]


@virtual
async def test_another_token_is_given_as_soon_as_it_is_there() -> None:
    file = File()
    login = Login(file.load)
    for _ in range(5):
        await login()
    asked = elapsed()
    asyncio.get_running_loop().call_later(3.5, setattr, file, "token", "second")

    assert ((await login()).token, elapsed() - asked) == ("second", 4.0)
    file.token, asked = "third", elapsed()
    assert ((await login()).token, elapsed() - asked) == ("third", 0.0)


@virtual
async def test_the_pauses_begin_anew_with_another_token() -> None:
    file = File()
    login = Login(file.load)
    for token in ("first", "first", "first", "second"):
        file.token = token
        await login()
    asked = elapsed()
    await login()

    assert elapsed() - asked == PAUSES[0]


@virtual
async def test_a_login_that_was_good_for_long_is_renewed_at_once() -> None:
    login = Login(File().load)
    await login()
    await asyncio.sleep(GOOD_SECONDS)
    asked = elapsed()

    assert ((await login()).token, elapsed() - asked) == ("first", 0.0)


@virtual
async def test_a_file_that_cannot_be_read_for_a_moment_costs_no_more_than_a_pause() -> None:
    file = File()
    login = Login(file.load)
    await login()
    file.broken = True

    assert ((await login()).token, elapsed()) == ("first", PAUSES[0])


@virtual
async def test_at_the_start_it_is_an_error() -> None:
    file = File()
    file.broken = True

    with pytest.raises(OSError, match="half written"):
        await Login(file.load)()
