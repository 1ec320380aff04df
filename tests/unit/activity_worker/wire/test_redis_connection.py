"""A Redis client over fake nodes: which commands go to which node, and how often."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from activity_worker.wire import redis_connection, redis_topology
from activity_worker.wire.redis_connection import RedisClient, open_client
from activity_worker.wire.redis_errors import RedisError, RedisErrorKind, unreachable
from activity_worker.wire.redis_pipeline import Command, ErrorReply
from activity_worker.wire.redis_topology import key_slot
from activity_worker.wire.redis_url import RedisUrl

Address = tuple[str, int]
#: Function that returns a node's answer to a command.
Answers = Callable[[Address, Command], Any]

A, B, C = ("a", 1), ("b", 2), ("c", 3)


class Node:
    """A connection to a node that records its commands."""

    def __init__(self, address: Address, answers: Answers, asked: list[tuple[Address, Command]]) -> None:
        self.broken: RedisError | None = None
        self._address, self._answers, self._commands = address, answers, asked

    async def exchange(self, commands: Sequence[Command], seconds: float) -> list[Any]:
        self._commands += [(self._address, command) for command in commands if command[0] != "CLUSTER"]
        answers = [self._answers(self._address, command) for command in commands]
        for answer in answers:
            if isinstance(answer, RedisError):
                self.broken = answer
                raise answer
        return answers

    def give_up(self, error: RedisError) -> None:
        self.broken = error

    async def close(self) -> None:
        self.broken = self.broken or unreachable("ConnectionClosed", "")


@pytest.fixture
def client_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[RedisClient, list[tuple[Address, Command]]]]:
    """Return a function that makes a client, and the list of the commands that its nodes get."""

    def make(url: str, answers: Answers) -> tuple[RedisClient, list[tuple[Address, Command]]]:
        asked: list[tuple[Address, Command]] = []

        async def connect(_: RedisUrl, host: str, port: int) -> Node:
            return Node((host, port), answers, asked)

        async def connect_to_sentinel(_: RedisUrl, host: str, port: int) -> Node:
            return Node((host, port), answers, [])

        monkeypatch.setattr(redis_connection, "connect", connect)
        monkeypatch.setattr(redis_topology, "connect", connect)
        monkeypatch.setattr(redis_topology, "connect_sentinel", connect_to_sentinel)
        return open_client(url), asked

    return make


def map_to(node: Address) -> list[list[object]]:
    return [[0, 16383, [node[0], node[1], "id"]]]


async def test_only_moved_commands_of_a_pipeline_are_sent_again(client_of: Any) -> None:
    """A command that was carried out must not be carried out a second time."""

    def answers(node: Address, command: Command) -> Any:
        if command[0] == "CLUSTER":
            return map_to(A)
        if node == A and command[1] == "k2":
            return ErrorReply(f"MOVED {key_slot('k2')} b:2")
        return f"{node[0]} {command[1]!s}"

    client, asked = client_of("redis+cluster://a:1", answers)

    assert await client.pipeline([("RPUSH", "k1", 1), ("RPUSH", "k2", 1), ("RPUSH", "k3", 1)]) == [
        "a k1",
        "b k2",
        "a k3",
    ]
    assert asked == [(A, ("RPUSH", "k1", 1)), (A, ("RPUSH", "k2", 1)), (A, ("RPUSH", "k3", 1)), (B, ("RPUSH", "k2", 1))]


async def test_moved_transaction_is_sent_again_as_a_whole(client_of: Any) -> None:
    def answers(node: Address, command: Command) -> Any:
        if command[0] == "CLUSTER":
            return map_to(A)
        if node == A:
            moved = command[0] == "SET"
            return (
                ErrorReply(f"MOVED {key_slot('k')} b:2")
                if moved
                else ErrorReply("EXECABORT")
                if command[0] == "EXEC"
                else "OK"
            )
        return ["done"] if command[0] == "EXEC" else "QUEUED"

    client, asked = client_of("redis+cluster://a:1", answers)

    assert await client.transaction([("SET", "k", 1)]) == ["done"]
    assert [(node, command[0]) for node, command in asked] == [
        (node, name) for node in (A, B) for name in ("MULTI", "SET", "EXEC")
    ]


async def test_redirection_loop_is_given_up(client_of: Any) -> None:
    def answers(node: Address, command: Command) -> Any:
        if command[0] == "CLUSTER":
            return map_to(A)
        return ErrorReply(f"MOVED {key_slot('k')} {'b:2' if node == A else 'a:1'}")

    client, asked = client_of("redis+cluster://a:1", answers)

    with pytest.raises(RedisError, match="point at each other"):
        await client.call("GET", "k")
    assert len(asked) == 5


async def test_call_without_an_answer_is_not_sent_again(client_of: Any) -> None:
    def answers(node: Address, command: Command) -> Any:
        return unreachable("ConnectionLost", "")

    client, asked = client_of("redis://a:1", answers)

    with pytest.raises(RedisError) as lost:
        await client.call("RPUSH", "k", 1)
    assert lost.value.kind is RedisErrorKind.UNREACHABLE
    assert asked == [(A, ("RPUSH", "k", 1))]


@pytest.mark.parametrize("code", ["READONLY", "LOADING", "MASTERDOWN"])
async def test_former_master_is_looked_up_again_at_the_next_call(client_of: Any, code: str) -> None:
    masters = [["b", "2"], ["c", "3"]]

    def answers(node: Address, command: Command) -> Any:
        if command[0] == "SENTINEL":
            return masters.pop(0)
        return ErrorReply(f"{code} words") if node == B else "OK"

    client, asked = client_of("redis+sentinel://a:1/shop", answers)

    with pytest.raises(RedisError, match=code):
        await client.call("SET", "k", 1)
    assert await client.call("SET", "k", 1) == "OK"
    assert [node for node, _ in asked] == [B, C]


async def test_read_all_returns_an_answer_or_error_per_command(client_of: Any) -> None:
    def answers(node: Address, command: Command) -> Any:
        return ErrorReply("NOPERM no") if command[1] == "k2" else 7

    client, _ = client_of("redis://a:1", answers)

    first, second = await client.read_all([("LLEN", "k1"), ("LLEN", "k2")])

    assert (first, second.code) == (7, "NOPERM")
    with pytest.raises(RedisError, match="NOPERM"):
        await client.pipeline([("LLEN", "k1"), ("LLEN", "k2")])


async def test_empty_pipeline_sends_nothing(client_of: Any) -> None:
    client, asked = client_of("redis+cluster://a:1", lambda *_: pytest.fail("a node got a command"))

    assert await client.pipeline([]) == []
    assert asked == []
