"""Calls of a flow that need no real server."""

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
async def test_invalid_job_is_refused_before_any_command(fields: dict[str, Any], words: str) -> None:
    server = FakeServer()

    with pytest.raises(FlowError, match=words):
        await Flow(SHOP, server).create(fields)

    assert server.commands == []


async def test_find_accepts_only_lookup_attributes() -> None:
    with pytest.raises(FlowError, match="'name': not looked up by; lookup: user"):
        await Flow(SHOP, FakeServer()).find("name", "x")


async def test_wait_retries_while_the_server_is_unreachable() -> None:
    answers = {"HGET": '"true"', "EXISTS": 1, "HGETALL": ["failed", "true"], "LPOS": None}
    troubles = [AWAY, AWAY]

    def reply(name: str, *_: Any) -> Any:
        if troubles:
            raise troubles.pop()
        return answers[name]

    job = await Flow(SHOP, FakeServer(reply)).wait("1", timeout_seconds=5, look_seconds=0.001)

    assert job.state is JobState.FAILED


async def test_wait_times_out_with_the_last_error_of_the_server() -> None:
    def reply(*_: Any) -> Any:
        raise AWAY

    with pytest.raises(TimeoutError, match=r"job 1 of flow shop: not finished in 0\.05 s; ConnectionLost"):
        await Flow(SHOP, FakeServer(reply)).wait("1", timeout_seconds=0.05, look_seconds=0.001)


async def test_wait_raises_a_permanent_error_at_once() -> None:
    def reply(*_: Any) -> Any:
        raise WRONG

    with pytest.raises(RedisError, match="WRONGTYPE"):
        await Flow(SHOP, FakeServer(reply)).wait("1", timeout_seconds=5)


async def test_wait_reads_the_lists_only_after_a_change_of_the_hash() -> None:
    answers = {"HGET": None, "EXISTS": 1}
    server = FakeServer(lambda name, *_: answers[name])

    with pytest.raises(TimeoutError):
        await Flow(SHOP, server).wait("1", timeout_seconds=0.05, look_seconds=0.001)

    assert {command[0] for command in server.commands} == {"HGET", "EXISTS"}


async def test_retry_of_a_job_without_failed_queue_needs_a_queue() -> None:
    answers = {"HGETALL": ["failed", '"true"'], "LPOS": None, "EVAL": 1}
    flow = Flow(SHOP, FakeServer(lambda name, *_: answers[name]))

    with pytest.raises(FlowError, match="does not say in which queue it failed: name one"):
        await flow.retry("1")
    with pytest.raises(FlowError, match="queue 'x': no such queue"):
        await flow.retry("1", queue="x")
    assert await flow.retry("1", queue="b") == "b"


async def test_invalid_workers_are_refused() -> None:
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
