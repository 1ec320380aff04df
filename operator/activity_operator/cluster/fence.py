"""The last moment at which a call may be withheld: right before its first byte goes out.

Who writes asks for leave when it begins. After that the call waits for a connection, and a process that is stopped
there and goes on seconds later would send what somebody else decides by then: half an hour of faults on a loaded
machine saw two statuses of a former leader that way.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import aiohttp

#: Who asks, and in which task: one that is made within (a poll, say) has the context too, and may outlive the term.
_check: ContextVar[tuple["asyncio.Task[Any] | None", Callable[[], None]] | None] = ContextVar("leave", default=None)


@contextmanager
def checked_before_send(check: Callable[[], None]) -> Iterator[None]:
    """Have every call of this task within ask once more before it is sent; what `check` raises, the call raises."""
    before = _check.set((asyncio.current_task(), check))
    try:
        yield
    finally:
        _check.reset(before)


def tracing() -> aiohttp.TraceConfig:
    """Return what a client session must be made with, for its calls to ask."""
    config = aiohttp.TraceConfig()
    config.on_request_headers_sent.append(_ask)
    return config


async def _ask(_: Any, __: Any, ___: aiohttp.TraceRequestHeadersSentParams) -> None:
    # Its name notwithstanding, the headers are written after this (aiohttp.http_writer.StreamWriter.write_headers).
    check = _check.get()
    if check is not None and check[0] is asyncio.current_task():
        check[1]()
