"""One flow for all tests, defined by our library and by the published package."""

from typing import Any

from activity_worker.flows import FlowDefinition, Queue

SHOP = FlowDefinition(
    "shop",
    (
        Queue("prepare", ("user", "absent"), next_queue="check", block_seconds=1),
        Queue("check", next_queue="send", block_seconds=1, children=(Queue("stock", ("item",), block_seconds=1),)),
        Queue("send", ("user", "sum", "children:check:jobs"), block_seconds=1),
    ),
    lookup=("user", "tags"),
)

#: The same queues in the package's form.
PEERS_QUEUES: list[dict[str, Any]] = [
    {"queueName": "prepare", "attributesToGet": ["user", "absent"], "nextQueueName": "check"},
    {
        "queueName": "check",
        "nextQueueName": "send",
        "children": [{"queueName": "stock", "attributesToGet": ["item"]}],
    },
    {"queueName": "send", "attributesToGet": ["user", "sum", "children:check:jobs"]},
]

#: The fields of a new job: every JSON type, and many kinds of text.
FIELDS: dict[str, Any] = {
    "user": 62,
    "tags": ["new", 3, True],
    "text": 'a "quoted" \\ line\nwith \u00e9, \u2028, \U0001f600 and \u0001',
    "price": 1.5,
    "none": None,
    "nested": {"b": [1, {"a": {}}], "empty": []},
}
#: The result of the first worker: two children for the parent queue.
PREPARED: dict[str, Any] = {
    "sum": 124,
    "children:check:params": [{"childName": "stock", "item": "pen"}, {"childName": "stock", "item": {"id": 7}}],
}
