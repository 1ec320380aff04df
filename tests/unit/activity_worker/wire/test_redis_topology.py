"""The slots of keys in a cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot as library_slot

from activity_worker.wire.redis_errors import RedisError
from activity_worker.wire.redis_topology import check_tags, key_slot, topology_of
from activity_worker.wire.redis_url import parse_redis_url


@given(st.one_of(st.binary(), st.text(alphabet="{}ab", max_size=8).map(str.encode)))
def test_slot_of_a_key_equals_that_of_the_library(key: bytes) -> None:
    assert key_slot(key) == library_slot(key)


def test_flow_and_its_queues_need_one_hash_tag() -> None:
    check_tags("{shop}", "{shop}pack", "at:{shop}:send")
    for names in (("shop", "{shop}pack"), ("{a}", "{b}"), ("shop",), ("{}shop", "{}shop")):
        with pytest.raises(ValueError, match="one hash tag"):
            check_tags(*names)


def test_transaction_over_several_slots_is_refused_before_it_is_sent() -> None:
    places = topology_of(parse_redis_url("redis+cluster://h"))

    places.check_together([("LREM", "queue:{a}b:processing", 1, "j"), ("DEL", "lock:{a}b:j")])
    with pytest.raises(RedisError, match=r"CROSSSLOT: .*hash tag"):
        places.check_together([("SET", "a", 1), ("SET", "b", 1)])
