"""The last moment at which a call may be withheld: right before its first byte goes out.

Who writes asks for leave when it begins. After that the call waits for a connection, and a process that is stopped
there and goes on seconds later would send what somebody else decides by then: half an hour of faults on a loaded
machine saw two statuses of a former leader that way.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import aiohttp

_leave: ContextVar[Callable[[], None] | None] = ContextVar("leave", default=None)


@contextmanager
def leave_of(ask: Callable[[], None]) -> Iterator[None]:
    """Have every call that is made within ask once more before it is sent; what `ask` raises, the call raises."""
    before = _leave.set(ask)
    try:
        yield
    finally:
        _leave.reset(before)


def tracing() -> aiohttp.TraceConfig:
    """Return what a client session must be made with, for its calls to ask."""
    config = aiohttp.TraceConfig()
    config.on_request_headers_sent.append(_ask)
    return config


async def _ask(_: Any, __: Any, ___: aiohttp.TraceRequestHeadersSentParams) -> None:
    # Its name notwithstanding, the headers are written after this (aiohttp.http_writer.StreamWriter.write_headers).
    if (ask := _leave.get()) is not None:
        ask()
