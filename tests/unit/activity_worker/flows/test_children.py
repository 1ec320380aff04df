"""Children that a job asks for, and the requests that are refused because they could never finish."""

from typing import Any

import pytest

from activity_worker.flows.children import ChildrenError, make_children
from activity_worker.flows.definition import FlowQueue, Queue
from tests.unit.activity_worker.flows.fake_server import FakeServer

CHECK = FlowQueue("shop", "check", Queue("check", children=(Queue("stock"), Queue("price"))))
ANY = FlowQueue("shop", "check", Queue("check"))


async def test_children_and_their_keys_are_created_in_one_transaction() -> None:
    server = FakeServer()
    params = [{"childName": "stock", "item": 1}, {"childName": "price", "item": "a"}]

    (first, second) = await make_children(server, CHECK, "7", params, keep_seconds=60)

    flow, _, child_id = first.rpartition(":")
    assert flow == "job:check:stock"
    assert server.commands == [
        ("HSET", first, "item", "1"),
        ("EXPIRE", first, 60),
        ("RPUSH", "queue:check:stock:waiting", child_id),
        ("HSET", second, "item", '"a"'),
        ("EXPIRE", second, 60),
        ("RPUSH", "queue:check:price:waiting", second.rpartition(":")[2]),
        ("HSET", "job:shop:7", "children:check:jobs", f'["{first}","{second}"]'),
    ]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (None, "children:check:params: expected a list"),
        ({}, "children:check:params: expected a list"),
        ([{"item": 1}], r"children:check:params\[0\]: expected a childName, one of stock, price"),
        (
            [{"childName": "stock", "item": 1}, {"childName": "x", "item": 1}],
            r"params\[1\]: expected a childName, one of",
        ),
        (["stock"], r"params\[0\]: expected a childName"),
        ([{"childName": "stock"}], r"params\[0\]: expected at least one field beside childName"),
    ],
)
async def test_invalid_child_fails_its_parent_and_none_is_created(params: Any, words: str) -> None:
    server = FakeServer()

    with pytest.raises(ChildrenError, match=words):
        await make_children(server, CHECK, "7", params, keep_seconds=60)

    assert server.commands == []


async def test_parent_without_child_queues_accepts_any_name() -> None:
    (key,) = await make_children(FakeServer(), ANY, "7", [{"childName": "x", "item": 1}], keep_seconds=60)

    assert key.startswith("job:check:x:")
    with pytest.raises(ChildrenError, match=r"params\[0\]: expected a childName$"):
        await make_children(FakeServer(), ANY, "7", [{"childName": 3, "item": 1}], keep_seconds=60)
