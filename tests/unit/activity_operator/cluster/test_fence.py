"""The fence: a reconciliation asks for leave before each call; tasks that it starts are exempt."""

import asyncio
from typing import Any, cast

import pytest

from activity_operator.cluster import fence

ANY = cast("Any", None)


class GoneError(Exception):
    """The Lease belongs to another process."""


def refuse() -> None:
    raise GoneError


async def test_only_calls_inside_the_fence_ask_for_leave() -> None:
    with fence.checked_before_send(refuse), pytest.raises(GoneError):
        await fence._ask(ANY, ANY, ANY)

    await fence._ask(ANY, ANY, ANY)


async def test_task_started_inside_the_fence_is_exempt() -> None:
    """Polls start there; a task that one receives after the term is recorded all the same, or it would be lost."""
    with fence.checked_before_send(refuse):
        poll = asyncio.create_task(fence._ask(ANY, ANY, ANY))
    await poll

    with fence.checked_before_send(refuse):
        await asyncio.create_task(fence._ask(ANY, ANY, ANY))
