"""A Redis server that answers as a test defines."""

from collections.abc import Callable
from typing import Any

from activity_worker.wire.redis_connection import RedisClient
from activity_worker.wire.redis_errors import RedisError, RedisErrorKind, unreachable
from activity_worker.wire.redis_url import parse_redis_url

AWAY = unreachable("ConnectionLost", "the server is away")
WRONG = RedisError("WRONGTYPE", "not a hash", RedisErrorKind.REFUSED)


class FakeServer(RedisClient):
    """Answers each command with `reply`, and records it."""

    def __init__(self, reply: Callable[..., Any] = lambda *_: None) -> None:
        super().__init__(parse_redis_url("redis://127.0.0.1"))
        self.reply = reply
        self.commands: list[tuple[Any, ...]] = []

    async def call(self, *command: Any) -> Any:
        self.commands.append(command)
        return self.reply(*command)

    async def pipeline(self, commands: Any) -> list[Any]:
        return [await self.call(*command) for command in commands]

    async def read_all(self, commands: Any) -> list[Any]:
        return await self.pipeline(commands)

    async def transaction(self, commands: Any) -> list[Any]:
        return await self.pipeline(commands)
