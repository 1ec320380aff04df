"""Who looks after a pool asks again before each call is sent; what it sets going has leave of its own."""

import asyncio
from typing import Any, cast

import pytest

from activity_operator.cluster import fence

ANY = cast("Any", None)


class GoneError(Exception):
    """The Lease is another's."""


def refuse() -> None:
    raise GoneError


async def test_a_call_within_asks_and_one_without_does_not() -> None:
    with fence.leave_of(refuse), pytest.raises(GoneError):
        await fence._ask(ANY, ANY, ANY)

    await fence._ask(ANY, ANY, ANY)


async def test_what_is_set_going_within_is_not_held_to_it() -> None:
    """Polls are opened there. What one brings after the term is recorded all the same, or nobody ever has it."""
    with fence.leave_of(refuse):
        poll = asyncio.create_task(fence._ask(ANY, ANY, ANY))
    await poll

    with fence.leave_of(refuse):
        await asyncio.create_task(fence._ask(ANY, ANY, ANY))
