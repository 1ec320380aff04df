"""A flow's calls, as far as they need no server."""

from typing import Any

import pytest

from activity_worker.flows import Flow, FlowDefinition, FlowError, FlowWorkers, JobState, Queue
from activity_worker.wire.redis_errors import RedisError
from tests.unit.activity_worker.flows.fake_server import AWAY, WRONG, FakeServer

SHOP = FlowDefinition("shop", (Queue("a"), Queue("b", children=(Queue("c"),))), lookup=("user",))


async def handle(request: Any) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "flow shop: fields: none"),
        ({"when": object()}, "flow shop: fields: .*every value must be JSON"),
        ({"sum": float("nan")}, "flow shop: fields: .*every value must be JSON"),
        ({"user": ["a", {}]}, "user: a dict"),
    ],
)
async def test_a_job_that_cannot_be_stored_is_refused_before_anything_is_said(
    fields: dict[str, Any], words: str
) -> None:
    server = FakeServer()

    with pytest.raises(FlowError, match=words):
        await Flow(SHOP, server).create(fields)

    assert server.told == []


async def test_only_looked_up_attributes_are_looked_up() -> None:
    with pytest.raises(FlowError, match="'name': not looked up by; lookup: user"):
        await Flow(SHOP, FakeServer()).find("name", "x")


async def test_who_waits_asks_again_while_the_server_is_away() -> None:
    answers = {"HGET": '"true"', "EXISTS": 1, "HGETALL": ["failed", "true"], "LPOS": None}
    troubles = [AWAY, AWAY]

    def reply(name: str, *_: Any) -> Any:
        if troubles:
            raise troubles.pop()
        return answers[name]

    job = await Flow(SHOP, FakeServer(reply)).wait("1", timeout_seconds=5, look_seconds=0.001)

    assert job.state is JobState.FAILED


async def test_who_waits_is_told_at_the_end_that_the_server_is_away() -> None:
    def reply(*_: Any) -> Any:
        raise AWAY

    with pytest.raises(TimeoutError, match=r"job 1 of flow shop: not finished in 0\.05 s; ConnectionLost"):
        await Flow(SHOP, FakeServer(reply)).wait("1", timeout_seconds=0.05, look_seconds=0.001)


async def test_who_waits_is_told_at_once_what_does_not_pass() -> None:
    def reply(*_: Any) -> Any:
        raise WRONG

    with pytest.raises(RedisError, match="WRONGTYPE"):
        await Flow(SHOP, FakeServer(reply)).wait("1", timeout_seconds=5)


async def test_who_waits_looks_at_the_lists_only_when_the_hash_says_that_something_has_happened() -> None:
    answers = {"HGET": None, "EXISTS": 1}
    server = FakeServer(lambda name, *_: answers[name])

    with pytest.raises(TimeoutError):
        await Flow(SHOP, server).wait("1", timeout_seconds=0.05, look_seconds=0.001)

    assert {command[0] for command in server.told} == {"HGET", "EXISTS"}


async def test_a_failed_job_that_does_not_say_where_is_tried_again_only_where_it_is_told() -> None:
    answers = {"HGETALL": ["failed", '"true"'], "LPOS": None, "EVAL": 1}
    flow = Flow(SHOP, FakeServer(lambda name, *_: answers[name]))

    with pytest.raises(FlowError, match="does not say in which queue it failed: name one"):
        await flow.retry("1")
    with pytest.raises(FlowError, match="queue 'x': no such queue"):
        await flow.retry("1", queue="x")
    assert await flow.retry("1", queue="b") == "b"


async def test_workers_that_cannot_work_are_refused() -> None:
    workers = FlowWorkers(Flow(SHOP, FakeServer()))

    with pytest.raises(FlowError, match="flow shop: no workers: use serve or parents first"):
        await workers.start()
    with pytest.raises(FlowError, match="queue 'x': no such queue"):
        workers.serve("x", handle)
    with pytest.raises(FlowError, match="queue a: has no children to wait for"):
        workers.parents("a")


async def test_workers_are_added_before_they_start() -> None:
    workers = FlowWorkers(Flow(SHOP, FakeServer()))
    workers.serve("a", handle, count=0)
    async with workers:
        with pytest.raises(FlowError, match="queue b: workers are added before start"):
            workers.serve("b", handle)
