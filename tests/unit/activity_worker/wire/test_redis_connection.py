"""A Redis client over fake nodes: which commands go to which node, and how often."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from activity_worker.wire import redis_connection, redis_topology
from activity_worker.wire.redis_connection import RedisClient, open_client
from activity_worker.wire.redis_errors import RedisError, RedisErrorKind, unreachable
from activity_worker.wire.redis_limits import ANY_SERVER, RedisLimits
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

    def make(
        url: str, answers: Answers, limits: RedisLimits = ANY_SERVER
    ) -> tuple[RedisClient, list[tuple[Address, Command]]]:
        asked: list[tuple[Address, Command]] = []

        async def connect(_: RedisUrl, host: str, port: int, limits: RedisLimits) -> Node:
            return Node((host, port), answers, asked)

        async def connect_to_sentinel(_: RedisUrl, host: str, port: int, limits: RedisLimits) -> Node:
            return Node((host, port), answers, [])

        monkeypatch.setattr(redis_connection, "connect", connect)
        monkeypatch.setattr(redis_topology, "connect", connect)
        monkeypatch.setattr(redis_topology, "connect_sentinel", connect_to_sentinel)
        return open_client(url, limits), asked

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


def only_a_and_b(address: str) -> str:
    return "" if address in {"a:1", "b:2"} else "only a and b are allowed"


SOURCES = {
    "sentinel": ("redis+sentinel://a:1/shop", "the sentinel a:1 leads to c:3"),
    "map": ("redis+cluster://a:1", "CLUSTER SLOTS leads to c:3"),
    "moved": ("redis+cluster://a:1", "MOVED leads to c:3"),
}


@pytest.mark.parametrize("source", SOURCES)
async def test_refused_address_gets_no_connection(client_of: Any, source: str) -> None:
    def answers(node: Address, command: Command) -> Any:
        assert node != C, f"the client sent {command[0]!s} to the refused address"
        match command[0]:
            case "SENTINEL":
                return ["c", "3"]
            case "CLUSTER":
                return map_to(C if source == "map" else B)
        return ErrorReply(f"MOVED {key_slot('k')} c:3")

    url, words = SOURCES[source]
    client, _ = client_of(url, answers, RedisLimits(refusal=only_a_and_b))

    for _ in range(2):
        with pytest.raises(RedisError) as refused:
            await client.call("GET", "k")
        assert refused.value.code == "AddressRefused"
        assert f"{words}: only a and b are allowed" in str(refused.value)


async def test_sentinel_that_names_an_allowed_master_is_believed(client_of: Any) -> None:
    def answers(node: Address, command: Command) -> Any:
        return (["c", "3"] if node == A else ["B", "2"]) if command[0] == "SENTINEL" else "OK"

    client, asked = client_of("redis+sentinel://a:1,b:2/shop", answers, RedisLimits(refusal=only_a_and_b))

    assert await client.call("GET", "k") == "OK"
    assert [node for node, _ in asked] == [("B", 2)]


@pytest.mark.parametrize(
    "found",
    [
        [[0, 10**18, ["b", 2, "id"]]],
        [[0, 16383, ["b", 2, "id"]]] * 2,
        [[0, 16383, ["b", 700_000, "id"]]],
        [[0, 16383, [["b"], 2, "id"]]],
        [[0, 16383]],
        [7],
        7,
    ],
    ids=["endless range", "more slots than exist", "port", "host", "no master", "no ranges", "no list"],
)
async def test_map_that_is_none_is_an_error_of_the_server(client_of: Any, found: Any) -> None:
    client, _ = client_of("redis+cluster://a:1", lambda *_: found)

    with pytest.raises(RedisError) as refused:
        await client.call("GET", "k")
    assert refused.value.kind is RedisErrorKind.UNREACHABLE


@pytest.mark.parametrize("answer", ["MOVED", "MOVED 70000 b:2", "MOVED x b:2", f"MOVED {key_slot('k')} b:x"])
async def test_redirection_to_nowhere_ends_in_an_error(client_of: Any, answer: str) -> None:
    client, _ = client_of(
        "redis+cluster://a:1", lambda _, command: map_to(A) if command[0] == "CLUSTER" else ErrorReply(answer)
    )

    with pytest.raises(RedisError) as refused:
        await client.call("GET", "k")
    assert refused.value.kind is RedisErrorKind.UNREACHABLE


@pytest.mark.parametrize("found", ["text", ["b"], ["b", "x"], [None, "2"], ["b", "2", "3"]])
async def test_sentinel_that_names_no_address_is_an_error(client_of: Any, found: Any) -> None:
    client, _ = client_of("redis+sentinel://a:1/shop", lambda *_: found)

    with pytest.raises(RedisError) as refused:
        await client.call("GET", "k")
    assert refused.value.kind is RedisErrorKind.UNREACHABLE
