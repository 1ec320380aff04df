"""Checks leadership right before the first byte of a call is sent: the last moment at which it can be stopped.

A writer checks leadership when it begins a call. Then the call waits for a connection, and a process may be suspended
there. When it resumes seconds later, another leader may have decided differently. In half an hour of fault tests on a
loaded machine two statuses of a former leader were written that way.

aiohttp keeps the headers of a request until it has the body, and sends both with one call of the transport. On Python
3.11 that is a later turn of the event loop than the one of the headers' signal: five writes of a suspended leader went
out between the two. So the check runs at the signal of the body, which is in the same turn as the call of the
transport. Every call that changes something has a body. A check at the headers' signal costs nothing and comes earlier.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import aiohttp


@dataclass(slots=True)
class _Fence:
    """A check, and the task whose calls it guards: tasks that start within the block inherit it and may outlive it."""

    task: "asyncio.Task[Any] | None"
    check: Callable[[], None]
    refusal: Exception | None = None

    def ask(self) -> None:
        """Run the check, and keep its exception: aiohttp turns an exception at the body into one of its own."""
        self.refusal = None
        try:
            self.check()
        except Exception as error:
            self.refusal = error
            raise


_fence: ContextVar[_Fence | None] = ContextVar("fence", default=None)


@contextmanager
def checked_before_send(check: Callable[[], None]) -> Iterator[None]:
    """Run `check` right before each call of this task is sent; an exception of `check` becomes the call's."""
    before = _fence.set(_Fence(asyncio.current_task(), check))
    try:
        yield
    finally:
        _fence.reset(before)


def raise_refusal() -> None:
    """Raise the exception with which the check stopped the last call of this task, if it did."""
    fence = _own()
    if fence is not None and fence.refusal is not None:
        raise fence.refusal


def tracing() -> aiohttp.TraceConfig:
    """Return the trace configuration that a client session needs for these checks."""
    config = aiohttp.TraceConfig()
    config.on_request_start.append(_begin)
    config.on_request_headers_sent.append(_ask)
    config.on_request_chunk_sent.append(_ask)
    return config


def _own() -> _Fence | None:
    fence = _fence.get()
    return fence if fence is not None and fence.task is asyncio.current_task() else None


async def _begin(_: Any, context: SimpleNamespace, __: Any) -> None:
    # aiohttp sends the body in a task of its own, so the caller's fence is noted here, in the caller's task.
    context.fence = fence = _own()
    if fence is not None:
        fence.refusal = None


async def _ask(_: Any, context: SimpleNamespace, __: Any) -> None:
    # In spite of the signals' names, aiohttp writes afterwards (http_writer.StreamWriter.write_headers and write).
    if context.fence is not None:
        context.fence.ask()
