"""Definitions of flows, and the errors for invalid ones."""

import pytest

from activity_worker.flows.definition import FlowDefinition, FlowError, Queue, lookup_key

SHOP = FlowDefinition(
    "shop",
    (
        Queue("prepare", ("user",), next_queue="check"),
        Queue("check", children=(Queue("stock", ("item",)), Queue("price", children=(Queue("tax"),)))),
    ),
    lookup=("user", "roles"),
)


def test_child_queue_and_its_flow_are_prefixed_with_the_parents_name() -> None:
    flow_queues = [(flow_queue.flow, flow_queue.name) for flow_queue in SHOP.flow_queues()]

    assert flow_queues == [
        ("shop", "prepare"),
        ("shop", "check"),
        ("check:stock", "check:stock"),
        ("check:price", "check:price"),
        ("check:price:tax", "check:price:tax"),
    ]


def test_queue_is_found_by_its_full_name() -> None:
    assert SHOP.flow_queue("check:stock").queue.attributes == ("item",)

    with pytest.raises(FlowError, match="queue 'stock': no such queue; there are prepare, check, check:stock"):
        SHOP.flow_queue("stock")


def test_lookup_keys_of_texts_numbers_and_lists() -> None:
    assert SHOP.lookups({"user": 7, "roles": ["a", 2, True, 1.0, 2.5, None]}) == [
        "job:shop:user:7",
        "job:shop:roles:a",
        "job:shop:roles:2",
        "job:shop:roles:true",
        "job:shop:roles:1",
        "job:shop:roles:2.5",
        "job:shop:roles:null",
    ]


@pytest.mark.parametrize("value", [None, True, {"a": 1}])
def test_value_that_is_not_text_or_number_has_no_lookup_key(value: object) -> None:
    assert SHOP.lookups({"user": value}) == []


@pytest.mark.parametrize(("value", "words"), [({"a": 1}, "user: a dict"), ("\ud800", "user: half of a surrogate")])
def test_value_without_a_lookup_key_is_refused(value: object, words: str) -> None:
    with pytest.raises(FlowError, match=words):
        lookup_key("shop", "user", value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Queue(""), "queue.name: ''"),
        (lambda: Queue("a b"), "queue.name: 'a b'"),
        (lambda: Queue("a", "user"), "queue a: attributes: 'user': expected a tuple"),  # type: ignore[arg-type]
        (lambda: Queue("a", lock_seconds=0), "queue a: lock_seconds: 0"),
        (lambda: Queue("a", block_seconds=0), "queue a: block_seconds: 0"),
        (lambda: Queue("a", children=(Queue("c"), Queue("c"))), "queue a: children: c, c"),
        (lambda: FlowDefinition("", (Queue("a"),)), "flow.name: ''"),
        (lambda: FlowDefinition("f", ()), "flow f: queues: give at least one"),
        (lambda: FlowDefinition("f", (Queue("a"), Queue("a"))), "flow f: queues: a: there more than once"),
        (lambda: FlowDefinition("f", (Queue("a:b"), Queue("a", children=(Queue("b"),)))), "a:b: there more than once"),
        (lambda: FlowDefinition("f", (Queue("a", next_queue="b"),)), "queue a: next_queue: 'b': no such queue"),
        (lambda: FlowDefinition("f", (Queue("a"),), keep_seconds=0), "flow f: keep_seconds: 0"),
    ],
)
def test_definition_that_cannot_work_is_refused(make: object, words: str) -> None:
    with pytest.raises(FlowError, match=words):
        make()  # type: ignore[operator]
