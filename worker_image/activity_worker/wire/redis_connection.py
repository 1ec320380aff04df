"""A client for a Redis server, for the master that sentinels name, or for a cluster.

    client = open_client("redis://127.0.0.1:6379/0")
    await client.call("LLEN", "queue:resize:waiting")
    await client.close()

Calls from many coroutines share one connection, and go out together. The client sends nothing twice: after a
`RedisError` with `RedisErrorKind.UNREACHABLE` a command may have been carried out, and the caller decides what to do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from activity_worker.wire.redis_errors import RedisError, RedisErrorKind, unreachable
from activity_worker.wire.redis_limits import ANY_SERVER, RedisLimits
from activity_worker.wire.redis_pipeline import Arg, Command, ErrorReply, RedisPipeline, connect
from activity_worker.wire.redis_topology import Address, Topology, topology_of
from activity_worker.wire.redis_url import RedisUrl, parse_redis_url

__all__ = ["Arg", "Command", "RedisClient", "open_client"]

#: How often a cluster may point elsewhere before a call is given up.
_MOVES = 5
#: Answers that say that the connection leads to the wrong server now: the next call looks for the right one.
_WRONG_PLACE = frozenset({"READONLY", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED", "LOADING"})


def open_client(url: RedisUrl | str, limits: RedisLimits = ANY_SERVER) -> "RedisClient":
    """Return a client, which connects when it is used. Raises `RedisUrlError`.

    `limits`: the largest answer (default 64 MiB), and the addresses that a server may lead to (default: all).
    """
    return RedisClient(parse_redis_url(url) if isinstance(url, str) else url, limits)


class RedisClient:
    """Calls to Redis. Replies are str, int, None or lists of them. Every method raises `RedisError`.

    In a cluster the keys of one command or transaction must lie in one slot; those of a pipeline need not.
    """

    def __init__(self, url: RedisUrl, limits: RedisLimits = ANY_SERVER) -> None:
        self.url = url
        self._limits = limits
        self._topology: Topology = topology_of(url, limits)
        self._shared: dict[Address, RedisPipeline] = {}
        self._blocked: set[RedisPipeline] = set()
        self._spare: dict[Address, list[RedisPipeline]] = {}
        self._connecting: dict[Address, asyncio.Lock] = {}
        self._closed = False

    async def call(self, *command: Arg) -> Any:
        """Send a command and return its reply."""
        (reply,) = await self.pipeline([command])
        return reply

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands together and return their replies; raises the first refusal when all are answered."""
        return _agreed(await self._replies(commands))

    async def read_all(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands and return their replies; a refused one has its `RedisError` in its place.

        Raises when the server cannot be asked.
        """
        replies = await self._replies(commands)
        for at, reply in enumerate(replies):
            if isinstance(reply, ErrorReply):
                replies[at] = error = reply.error
                if error.kind is not RedisErrorKind.REFUSED and error.code != "NOPERM":
                    raise error
        return replies

    async def transaction(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands between MULTI and EXEC and return EXEC's replies."""
        self._topology.check_together(commands)
        for _ in range(_MOVES):
            replies = await self._exchange([("MULTI",), *commands, ("EXEC",)], keys_of=commands[0])
            # One that lies elsewhere aborts all.
            if not await self._followed(next((one for one in replies if isinstance(one, ErrorReply)), None)):
                return list(_agreed(replies)[-1])
        raise unreachable("MOVED", "the nodes of the cluster point at each other")

    async def call_blocking(self, *command: Arg, seconds: float) -> Any:
        """Send a command that waits on the server for up to `seconds`, on a connection of its own.

        Cancelling it may lose what the server is just about to hand over.
        """
        address, connection = await self._reach(command, self._idle)
        self._blocked.add(connection)
        try:
            replies = await connection.exchange([command], seconds + self.url.answer_seconds)
            self._look(replies, address, connection)
        except asyncio.CancelledError:
            # The caller is gone: an answer that still comes must not meet the next command.
            await connection.close()
            raise
        finally:
            self._blocked.discard(connection)
            if connection.broken is None:
                self._spare.setdefault(address, []).append(connection)
            else:
                self._topology.forget(address)
        if await self._followed(replies[0]):
            raise unreachable("MOVED", "the list is on another node of the cluster now: the next call finds it")
        return _agreed(replies)[0]

    async def close(self) -> None:
        """Close all connections; calls under way end with `RedisError`."""
        self._closed = True
        connections = [
            *self._shared.values(),
            *self._blocked,
            *(connection for spare in self._spare.values() for connection in spare),
        ]
        self._shared.clear()
        self._spare.clear()
        await asyncio.gather(*(connection.close() for connection in connections), self._topology.close())

    async def _replies(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands to where each lies; return their replies, refusals among them."""
        if not commands:
            return []
        if not self._topology.many:
            return await self._exchange(commands)
        replies: list[Any] = [None] * len(commands)
        left = list(range(len(commands)))
        for _ in range(_MOVES):
            groups = [[left[at] for at in group] for group in self._topology.groups([commands[at] for at in left])]
            for group, answers in zip(groups, await self._exchange_all(commands, groups), strict=True):
                for at, reply in zip(group, answers, strict=True):
                    replies[at] = reply
            # Those that lie elsewhere were not carried out; the others were, and are not sent again.
            left = [at for at in left if await self._followed(replies[at])]
            if not left:
                return replies
        raise unreachable("MOVED", "the nodes of the cluster point at each other")

    async def _exchange_all(self, commands: Sequence[Command], groups: list[list[int]]) -> list[list[Any]]:
        """Send groups of commands at once; raises only when all are answered or have failed."""
        if len(groups) == 1:
            return [await self._exchange([commands[at] for at in groups[0]])]
        sent = [self._exchange([commands[at] for at in group]) for group in groups]
        answers: list[list[Any]] = []
        for answer in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            answers.append(answer)
        return answers

    async def _exchange(self, commands: Sequence[Command], keys_of: Command | None = None) -> list[Any]:
        """Send commands to where the first (or `keys_of`) lies; return their replies, refusals among them."""
        address, connection = await self._reach(keys_of or commands[0], self._shared_connection)
        try:
            replies = await connection.exchange(commands, self.url.answer_seconds)
        except RedisError:
            self._topology.forget(address)
            raise
        self._look(replies, address, connection)
        return replies

    async def _followed(self, reply: Any) -> bool:
        """Learn from an answer that points to another node of a cluster; tells whether this is one."""
        if not isinstance(reply, ErrorReply) or reply.error.code not in {"MOVED", "ASK"}:
            return False
        await self._topology.follow(str(reply.args[0]))
        return True

    def _look(self, replies: list[Any], address: Address, connection: RedisPipeline) -> None:
        """Leave a server that says that it is the wrong one now."""
        for reply in replies:
            if isinstance(reply, ErrorReply) and (error := reply.error).code in _WRONG_PLACE:
                self._topology.forget(address)
                connection.give_up(error)

    async def _reach(
        self, command: Command, connected: Callable[[Address], Awaitable[RedisPipeline]]
    ) -> tuple[Address, RedisPipeline]:
        address = await self._topology.find(command)
        try:
            return address, await connected(address)
        except RedisError:
            # Nothing was sent yet: what was known of the place may be old.
            self._topology.forget(address)
            newer = await self._topology.find(command)
            if newer == address:
                raise
        return newer, await connected(newer)

    async def _idle(self, address: Address) -> RedisPipeline:
        """Return a connection on which nothing waits."""
        spare = self._spare.get(address, [])
        while spare:
            if (connection := spare.pop()).broken is None:
                return connection
        return await self._connect(address)

    async def _shared_connection(self, address: Address) -> RedisPipeline:
        connection = self._shared.get(address)
        if connection is not None and connection.broken is None:
            return connection
        async with self._connecting.setdefault(address, asyncio.Lock()):
            connection = self._shared.get(address)
            if connection is None or connection.broken is not None:
                connection = self._shared[address] = await self._connect(address)
        return connection

    async def _connect(self, address: Address) -> RedisPipeline:
        if self._closed:
            raise unreachable("ConnectionClosed", "the client was closed")
        return await connect(self.url, *address, self._limits)


def _agreed(replies: list[Any]) -> list[Any]:
    """Return replies, none of which is a refusal; raises the first that is."""
    for reply in replies:
        if isinstance(reply, ErrorReply):
            raise reply.error
    return replies
