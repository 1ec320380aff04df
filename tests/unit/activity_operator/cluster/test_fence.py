"""The fence: a reconciliation asks for leave before each call; tasks that it starts are exempt."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activity_operator.cluster import fence

ANY = cast("Any", None)


class GoneError(Exception):
    """The Lease belongs to another process."""


def refuse() -> None:
    raise GoneError


async def call() -> None:
    """Do what aiohttp does at the begin of a request and at its headers."""
    request = SimpleNamespace()
    await fence._begin(ANY, request, ANY)
    await fence._ask(ANY, request, ANY)


async def test_only_calls_inside_the_fence_ask_for_leave() -> None:
    with fence.checked_before_send(refuse), pytest.raises(GoneError):
        await call()

    await call()


async def test_task_started_inside_the_fence_is_exempt() -> None:
    """Polls start there; a task that one receives after the term is recorded all the same, or it would be lost."""
    with fence.checked_before_send(refuse):
        poll = asyncio.create_task(call())
    await poll

    with fence.checked_before_send(refuse):
        await asyncio.create_task(call())


async def test_body_sent_by_another_task_is_checked_for_its_caller() -> None:
    with fence.checked_before_send(refuse):
        request = SimpleNamespace()
        await fence._begin(ANY, request, ANY)
        with pytest.raises(GoneError):
            await asyncio.create_task(fence._ask(ANY, request, ANY))

        with pytest.raises(GoneError):
            fence.raise_refusal()


async def test_refusal_of_one_call_is_not_raised_for_the_next() -> None:
    refusals = [GoneError()]

    def refuse_once() -> None:
        if refusals:
            raise refusals.pop()

    with fence.checked_before_send(refuse_once):
        with pytest.raises(GoneError):
            await call()
        await call()
        fence.raise_refusal()
