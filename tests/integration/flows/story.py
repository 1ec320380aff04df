"""The contents of a server and the commands that it got, to compare two runs of one story byte for byte."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from activity_worker.wire.redis_connection import RedisClient

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
#: Seconds by which two runs may differ: times to live are rounded to it.
_APART = 10
#: The value of a lock is the worker's own choice.
_LOCKED = re.compile(r"^(SET lock:\S+) \S+ EX")
#: Seconds until a listener has read what the server has already sent.
HEARD_SECONDS = 30.0
_END = "the-end-of-the-story"


class Names:
    """Replaces ids by names in order of their appearance, so that two runs with different ids compare equal."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def replace(self, text: str) -> str:
        """Return the text with a name for every id."""
        return _ID.sub(lambda found: self._known.setdefault(found[0], f"<{len(self._known) + 1}>"), text)


async def contents(client: RedisClient, names: Names) -> dict[str, Any]:
    """Return every key with its type, value and time to live; fields of hashes in the order of the server."""
    found = {}
    for key in sorted(await client.call("KEYS", "*"), key=_without_ids):
        kind = await client.call("TYPE", key)
        value = "<worker>" if key.startswith("lock:") else await client.call(*_READ[kind](key))
        if kind == "hash":
            value = sorted(zip(value[::2], value[1::2], strict=True))
        left = await client.call("TTL", key)
        found[names.replace(key)] = (kind, _named(value, names), -(-left // _APART) * _APART)
    return found


@asynccontextmanager
async def recorded_commands(client: RedisClient, names: Names) -> AsyncIterator[list[str]]:
    """Yield the commands that changed data while the context was open.

    The list is filled when the context ends.
    """
    heard: list[str] = []
    # By default a read fails after 5 s without a command.
    listener = Redis.from_url(client.url.shown, socket_timeout=None)
    async with listener.monitor() as monitor:
        listening = asyncio.create_task(_listen(monitor, heard))
        try:
            yield heard
            await client.call("ECHO", _END)
            await asyncio.wait_for(listening, HEARD_SECONDS)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
    await listener.aclose()
    heard[:] = [names.replace(command) for command in _without_empty_transactions(heard)]


async def _listen(monitor: Any, heard: list[str]) -> None:
    async for entry in monitor.listen():
        command = str(entry["command"])
        if command.endswith(_END):
            return
        if command.partition(" ")[0] not in _ONLY_LOOKS:
            heard.append(_LOCKED.sub(r"\1 <worker> EX", command))


def _without_empty_transactions(heard: list[str]) -> list[str]:
    """Leave out transactions without a write: a worker that waits for children polls at its own pace."""
    found: list[str] = []
    for command in heard:
        if command == "EXEC" and found and found[-1] == "MULTI":
            found.pop()
        else:
            found.append(command)
    return found


def _named(value: Any, names: Names) -> Any:
    if isinstance(value, str):
        return names.replace(value)
    if isinstance(value, (list, tuple)):
        return [_named(one, names) for one in value]
    return value


def _without_ids(key: str) -> tuple[str, str]:
    """Sort keys by their kind, then by age: an id contains the time at which it was made."""
    return _ID.sub("", key), key


_READ: dict[str, Callable[[str], tuple[Any, ...]]] = {
    "hash": lambda key: ("HGETALL", key),
    "list": lambda key: ("LRANGE", key, 0, -1),
}
_ONLY_LOOKS = frozenset(
    {
        "HELLO",
        "CLIENT",
        "HGET",
        "HMGET",
        "HGETALL",
        "KEYS",
        "TYPE",
        "TTL",
        "GET",
        "LLEN",
        "LRANGE",
        "LPOS",
        "EXISTS",
        "BLMOVE",
    }
)
