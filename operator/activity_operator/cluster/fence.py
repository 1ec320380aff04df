"""Checks leadership right before the first byte of a call is sent: the last moment at which it can be stopped.

A writer checks leadership when it begins a call. Then the call waits for a connection, and a process may be suspended
there. When it resumes seconds later, another leader may have decided differently. In half an hour of fault tests on a
loaded machine two statuses of a former leader were written that way.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import aiohttp

#: The check and its task. A task created within the block (a poll, say) inherits the context and may outlive it.
_check: ContextVar[tuple["asyncio.Task[Any] | None", Callable[[], None]] | None] = ContextVar("leave", default=None)


@contextmanager
def checked_before_send(check: Callable[[], None]) -> Iterator[None]:
    """Run `check` right before each call of this task is sent; an exception of `check` becomes the call's."""
    before = _check.set((asyncio.current_task(), check))
    try:
        yield
    finally:
        _check.reset(before)


def tracing() -> aiohttp.TraceConfig:
    """Return the trace configuration that a client session needs for these checks."""
    config = aiohttp.TraceConfig()
    config.on_request_headers_sent.append(_ask)
    return config


async def _ask(_: Any, __: Any, ___: aiohttp.TraceRequestHeadersSentParams) -> None:
    # In spite of the signal's name, aiohttp writes the headers afterwards (http_writer.StreamWriter.write_headers).
    check = _check.get()
    if check is not None and check[0] is asyncio.current_task():
        check[1]()
