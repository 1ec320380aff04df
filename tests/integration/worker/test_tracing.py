"""Spans of a worker's tasks at a real receiver: OTLP over HTTP, decoded from protobuf."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from activity_worker.contract import Env
from activity_worker.testing.stepfunctions import FakeSettings, StepFunctionsFake
from tests.eventually import eventually

from .process import WorkerProcess, worker

APP = "tests.integration.worker.traced_app:app"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


class Receiver:
    """Takes exports at `url`; while `silent` it leaves them without an answer."""

    def __init__(self) -> None:
        self.url = ""
        self.silent = False
        self.spans: list[Span] = []
        self.attributes: dict[str, str] = {}
        self.bodies = b""

    async def export(self, request: web.Request) -> web.Response:
        """Decode one export."""
        body = await request.read()
        if self.silent:
            await asyncio.Event().wait()
        self.bodies += body
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.attributes |= {each.key: each.value.string_value for each in group.resource.attributes}
            self.spans += [span for scope in group.scope_spans for span in scope.spans]
        return web.Response(content_type="application/x-protobuf")


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver, server = Receiver(), web.Application()
    server.router.add_post("/v1/traces", receiver.export)
    runner = web.AppRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield receiver
    await runner.cleanup()


@pytest.fixture
async def fake() -> AsyncIterator[StepFunctionsFake]:
    async with StepFunctionsFake(settings=FakeSettings(poll_hold_seconds=1.0)) as fake:
        yield fake


@contextlib.asynccontextmanager
async def traced(
    fake: StepFunctionsFake,
    receiver: Receiver,
    *tasks: dict[str, Any],
    flags: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
) -> AsyncIterator[WorkerProcess]:
    """Run a worker on these tasks."""
    arn = fake.create_activity("work")
    fake.schedule(arn, *(json.dumps(task) for task in tasks))
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, Env.POOL: "resize", **(env or {})}
    command = ("run", APP, "--activity-arn", arn, "--endpoint-url", fake.url, *flags)
    async with worker(*command, env=variables) as running:
        yield running


async def test_last_spans_are_sent_when_the_worker_stops(fake: StepFunctionsFake, receiver: Receiver) -> None:
    origin = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    late = {"OTEL_BSP_SCHEDULE_DELAY": "600000"}
    async with traced(fake, receiver, {"_activity": origin, "secret": "word-of-the-input"}, env=late) as running:
        await running.line_with("task succeeded")
        assert receiver.spans == []
        running.process.terminate()
        assert await running.exit_code() == 0
    (span,) = receiver.spans

    assert (span.name, span.trace_id.hex(), span.parent_span_id.hex()) == ("process work", TRACE, PARENT)
    assert receiver.attributes["service.name"] == "resize"
    assert b"word-of-the-input" not in receiver.bodies


async def test_log_lines_of_a_task_have_the_ids_of_its_span(fake: StepFunctionsFake, receiver: Receiver) -> None:
    async with traced(fake, receiver, {"raise": True}) as running:
        await running.line_with("task failed as")
        running.process.terminate()
        assert await running.exit_code() == 0
    (span,) = receiver.spans
    ids = (span.trace_id.hex(), span.span_id.hex())

    for message in ("working", "task failed as ValueError"):
        assert [(line["trace_id"], line["span_id"]) for line in running.facts(message)] == [ids], message
    assert ["trace_id" in line for line in running.facts("task started")] == [False]


async def test_failures_setting_of_the_worker_holds_for_its_spans(fake: StepFunctionsFake, receiver: Receiver) -> None:
    async with traced(fake, receiver, {"raise": True}, flags=("--log-failures", "name")) as running:
        await running.line_with("task failed as")
        running.process.terminate()
        assert await running.exit_code() == 0

    assert [event.attributes[0].key for event in receiver.spans[0].events] == ["exception.type"]
    assert b"no such picture" not in receiver.bodies


async def test_silent_receiver_does_not_keep_a_worker_from_stopping(
    fake: StepFunctionsFake, receiver: Receiver
) -> None:
    receiver.silent = True
    async with traced(fake, receiver, {}) as running:
        await running.line_with("task succeeded")
        running.process.terminate()
        assert await running.exit_code() == 0

    assert len(running.facts("the last spans were not sent within 3 s")) == 1


async def test_killed_process_loses_only_the_spans_that_wait(fake: StepFunctionsFake, receiver: Receiver) -> None:
    early = {"OTEL_BSP_SCHEDULE_DELAY": "100"}
    async with traced(fake, receiver, {"n": 1}, env=early) as running:
        await running.line_with("task succeeded")
        await eventually("the first span has arrived", lambda: len(receiver.spans) == 1)
        fake.schedule(fake.create_activity("work"), json.dumps({"die": True}))
        await running.line_with("ActivityPool.HandlerExited")
        fake.schedule(fake.create_activity("work"), json.dumps({"raise": True}))
        await running.line_with("task failed as ValueError")
        running.process.terminate()
        assert await running.exit_code() == 0

    assert [span.status.message for span in receiver.spans] == ["", "no such picture"]
