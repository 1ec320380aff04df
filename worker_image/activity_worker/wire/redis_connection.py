"""A client for a Redis server, for the master that sentinels name, or for a cluster.

    client = open_client("redis://127.0.0.1:6379/0")
    await client.call("LLEN", "queue:resize:waiting")
    await client.close()

Calls from many coroutines share one connection, and go out together. Nothing is ever sent twice by itself: after
`RedisError` with `Trouble.UNREACHABLE` a command may have been carried out, and the caller knows what that means.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from activity_worker.wire.redis_errors import RedisError, Trouble, unreachable
from activity_worker.wire.redis_link import Arg, Command, Link, Refusal, connect
from activity_worker.wire.redis_places import Address, Moved, Places, places_of
from activity_worker.wire.redis_url import RedisUrl, parse_redis_url

__all__ = ["Arg", "Command", "RedisClient", "open_client"]

#: How often a cluster may point elsewhere before a call is given up.
_MOVES = 5
#: Answers that say that the connection leads to the wrong server now: the next call looks for the right one.
_WRONG_PLACE = frozenset({"READONLY", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED", "LOADING"})


def open_client(url: RedisUrl | str) -> "RedisClient":
    """Return a client, which connects when it is used. Raises `RedisUrlError`."""
    return RedisClient(parse_redis_url(url) if isinstance(url, str) else url)


class RedisClient:
    """Calls to Redis. Replies are str, int, None or lists of them. Every method raises `RedisError`.

    In a cluster the keys of one command or transaction must lie in one slot; those of a pipeline need not.
    """

    def __init__(self, url: RedisUrl) -> None:
        self.url = url
        self._places: Places = places_of(url)
        self._shared: dict[Address, Link] = {}
        self._blocked: set[Link] = set()
        self._spare: dict[Address, list[Link]] = {}
        self._connecting: dict[Address, asyncio.Lock] = {}
        self._closed = False

    async def call(self, *command: Arg) -> Any:
        """Send a command and return its reply."""
        (reply,) = await self._exchange([command])
        return reply

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands together and return their replies; raises the first refusal when all are answered."""
        if not commands:
            return []
        groups = self._places.groups(commands)
        if len(groups) == 1:
            return await self._exchange(commands)
        # All are waited for, so that none goes on behind the caller's back when another fails.
        tasks = [self._exchange([commands[at] for at in group]) for group in groups]
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        replies: list[Any] = [None] * len(commands)
        for group, answer in zip(groups, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            for at, reply in zip(group, answer, strict=True):
                replies[at] = reply
        return replies

    async def read_all(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands that only read, and return their replies; a refused one has its `RedisError` in its place.

        Raises when the server cannot be asked. What lies on another node of a cluster by now is asked for again there.
        """
        replies: list[Any] = [None] * len(commands)
        left = list(range(len(commands)))
        for _ in range(_MOVES):
            groups = [[left[at] for at in group] for group in self._places.groups([commands[at] for at in left])]
            tasks = [self._replies([commands[at] for at in group]) for group in groups]
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            left = []
            for group, answer in zip(groups, answers, strict=True):
                if isinstance(answer, BaseException):
                    raise answer
                for at, reply in zip(group, answer, strict=True):
                    if isinstance(reply, Moved):
                        await self._places.follow(reply)
                        left.append(at)
                    else:
                        replies[at] = reply
            if not left:
                return replies
        raise unreachable("MOVED", "the nodes of the cluster point at each other")

    async def transaction(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands between MULTI and EXEC and return EXEC's replies."""
        replies = await self._exchange([("MULTI",), *commands, ("EXEC",)], key_of=commands[0])
        return list(replies[-1])

    async def call_blocking(self, *command: Arg, seconds: float) -> Any:
        """Send a command that waits on the server for up to `seconds`, on a connection that nobody else uses meanwhile.

        Cancelling it may lose what the server is just about to hand over.
        """
        address = await self._places.find(command)
        spare = self._spare.setdefault(address, [])
        link: Link | None = None
        while spare and link is None:
            link = spare.pop()
            link = None if link.broken is not None else link
        link = link or await self._connect(address)
        self._blocked.add(link)
        try:
            (reply,) = await link.exchange([command], seconds + self.url.answer_seconds)
        except RedisError:
            self._places.forget(address)
            raise
        except BaseException:
            # Whatever the server still answers here is nobody's.
            await link.close()
            raise
        finally:
            self._blocked.discard(link)
        try:
            self._judge([reply], address, link)
        except Moved as moved:
            await link.close()
            await self._places.follow(moved)
            raise unreachable(
                "MOVED", "the queue has moved to another node of the cluster; the next call finds it"
            ) from moved
        if link.broken is None:
            spare.append(link)
        return reply

    async def close(self) -> None:
        """Close all connections; calls under way end with `RedisError`."""
        self._closed = True
        links = [*self._shared.values(), *self._blocked, *(link for spare in self._spare.values() for link in spare)]
        self._shared.clear()
        self._spare.clear()
        await asyncio.gather(*(link.close() for link in links), self._places.close())

    async def _exchange(self, commands: Sequence[Command], key_of: Command | None = None) -> list[Any]:
        asked: list[Command] = list(commands)
        address = await self._places.find(key_of or commands[0])
        for _ in range(_MOVES):
            link = await self._link(address)
            try:
                replies = await link.exchange(asked, self.url.answer_seconds)
            except RedisError:
                self._places.forget(address)
                raise
            try:
                self._judge(replies, address, link)
            except Moved as moved:
                # Refused for lying elsewhere: nothing of it was carried out here.
                address, asked = await self._places.follow(moved), list(commands)
                continue
            return replies
        raise unreachable("MOVED", "the nodes of the cluster point at each other")

    async def _replies(self, commands: Sequence[Command]) -> list[Any]:
        """Return each command's reply, its `Moved` or what it was refused with; raises what concerns all of them."""
        address = await self._places.find(commands[0])
        link = await self._link(address)
        try:
            replies = await link.exchange(commands, self.url.answer_seconds)
        except RedisError:
            self._places.forget(address)
            raise
        for at, reply in enumerate(replies):
            if isinstance(reply, Refusal):
                try:
                    self._judge([reply], address, link)
                except Moved as moved:
                    replies[at] = moved
                except RedisError as error:
                    if error.trouble is not Trouble.REFUSED and error.code != "NOPERM":
                        raise
                    replies[at] = error
        return replies

    def _judge(self, replies: list[Any], address: Address, link: Link) -> None:
        """Raise the first refusal."""
        for reply in replies:
            if isinstance(reply, Refusal):
                error = reply.error
                if error.code in {"MOVED", "ASK"}:
                    raise Moved(str(reply.args[0]))
                if error.code in _WRONG_PLACE:
                    self._places.forget(address)
                    link.give_up(error)
                raise error

    async def _link(self, address: Address) -> Link:
        link = self._shared.get(address)
        if link is not None and link.broken is None:
            return link
        async with self._connecting.setdefault(address, asyncio.Lock()):
            link = self._shared.get(address)
            if link is None or link.broken is not None:
                link = self._shared[address] = await self._connect(address)
        return link

    async def _connect(self, address: Address) -> Link:
        if self._closed:
            raise unreachable("ConnectionClosed", "the client was closed")
        try:
            return await connect(self.url, *address)
        except RedisError:
            self._places.forget(address)
            raise
