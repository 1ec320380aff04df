"""Values of every kind: we write the same bytes as the package, and each reads the other's."""

import random
import sys
from typing import Any

from activity_worker.flows import Flow
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import RedisClient
from tests.peers.queues.peer import PeerFlow

_JOBS = 150
#: Characters that encoders treat differently: quotes, controls, line separators, surrogate pairs and lone surrogates.
_LETTERS = [
    *"aZ09 \"\\/'<>&",
    *map(chr, range(0x21)),
    *"\x7f\x80\u00e9\u2028\u2029\ufeff\uffff\U0001f600",
    "\ud83d",
    "\udc00",
]


def _text(chance: random.Random) -> str:
    joined = "".join(chance.choices(_LETTERS, k=chance.randint(0, 6)))
    # Two lone surrogates that happen to be adjacent form a pair: JSON cannot express the difference.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _value(chance: random.Random, depth: int = 0) -> Any:
    kinds = ["text", "whole", "word"] + (["list", "object"] if depth < 3 else [])
    match chance.choice(kinds):
        case "text":
            return _text(chance)
        case "whole":
            # The range of integers in JavaScript.
            return chance.choice([0, -1, 7, 2**53 - 1, -(2**53) + 1, chance.randint(-(10**9), 10**9)])
        case "word":
            return chance.choice([None, True, False])
        case "list":
            return [_value(chance, depth + 1) for _ in range(chance.randint(0, 3))]
        case _:
            return {"k" + _text(chance): _value(chance, depth + 1) for _ in range(chance.randint(0, 3))}


async def test_both_write_the_same_bytes_for_a_value(flow: Flow, peer: PeerFlow, client: RedisClient) -> None:
    chance = random.Random(3)
    for number in range(_JOBS):
        fields = {"user": number, **{f"f{n}": _value(chance) for n in range(4)}}

        ours, theirs = await flow.create(fields), await peer.create(fields)

        held = [await client.call("HGETALL", keys.job("shop", job_id)) for job_id in (ours, theirs)]
        first, second = (sorted(zip(one[::2], one[1::2], strict=True)) for one in held)
        assert first == second, fields
        assert (await flow.get(theirs)).fields == fields
        assert [{**job, "id": ""} for job in await peer.find("user", number)] == [{"id": "", **fields}] * 2


async def test_float_is_read_and_looked_up_alike(flow: Flow, peer: PeerFlow) -> None:
    for number in (1.0, 0.5, -2.25, 1e15, 1e21, 1e-7, 123456.789, sys.float_info.max, 5e-324):
        ours, theirs = await flow.create({"sum": number, "n": 1}), await peer.create({"sum": number, "n": 1})
        for job_id in (ours, theirs):
            assert (await flow.get(job_id)).fields == {"sum": number, "n": 1}

    for number in (
        1.0,
        0.5,
        -2.25,
        123456.789,
        -0.0,
        1e-7,
        1e15,
        1e16,
        1e21,
        123456789012345680000.0,
        2**53 + 1,
        2**60,
    ):
        ours, theirs = await flow.create({"user": number}), await peer.create({"user": number})
        assert [job.id for job in await flow.find("user", number)][-2:] == [ours, theirs]
        assert [job["id"] for job in await peer.find("user", number)][-2:] == [ours, theirs]
