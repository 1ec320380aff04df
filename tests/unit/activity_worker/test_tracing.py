"""Spans of tasks: their names, their trace, and what they say about failures. Spans are kept in memory."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from activity_worker import Activities, ConcludeLater, Context, MemorySource, Slot, TaskFailed
from activity_worker.contract import Env, LeasedTask, ScheduledActivity
from activity_worker.middleware import trace_calls
from activity_worker.task import TaskRequest
from activity_worker.tracing import TracingError, _attributes, _make_provider, tracing_is_on

ARN = "arn:aws:states:us-east-1:123456789012:activity:resize"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ORIGIN = {
    "execution": "arn:aws:states:us-east-1:123456789012:execution:shop:order-1",
    "state": "Resize",
    "retries": 1,
    "traceparent": TRACEPARENT,
}


@dataclass(frozen=True)
class Polled:
    """The worker of a task."""

    activity_arn: str
    worker_name: str = "pod:abcde"


class TracingHarness:
    """A registry whose spans are kept, and a slot that runs its tasks."""

    def __init__(self, name: str = ARN) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.app = Activities()
        trace_calls(self.app, provider=self.provider)
        self.source = MemorySource(name)

    async def run(self, handler: Any, value: Any) -> ReadableSpan:
        """Run one task and return its span."""
        self.app.activity(name="resize", default=True)(handler)
        self.source.put(json.dumps(value))
        await Slot(self.source, self.app).run_once()
        (span,) = self.exporter.get_finished_spans()
        return span


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SDK_DISABLED", Env.LOG_FAILURES):
        monkeypatch.delenv(name, raising=False)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_span_belongs_to_the_trace_that_the_input_names() -> None:
    span = await TracingHarness().run(lambda job: None, {"secret": "word-of-the-input", "_activity": ORIGIN})

    assert span.context is not None
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == TRACEPARENT.split("-")[1]
    assert f"{span.parent.span_id:016x}" == TRACEPARENT.split("-")[2]
    assert "word-of-the-input" not in span.to_json()


async def test_span_has_the_names_of_the_conventions() -> None:
    span = await TracingHarness().run(lambda job: None, {"_activity": ORIGIN})
    found = attributes(span)

    assert (span.name, span.kind, span.status.status_code) == ("process resize", SpanKind.CONSUMER, StatusCode.UNSET)
    assert found["aws.step_functions.activity.arn"] == ARN
    assert found["aws.step_functions.state_machine.arn"] == "arn:aws:states:us-east-1:123456789012:stateMachine:shop"
    assert found["messaging.system"] == "aws_step_functions"
    assert found["messaging.operation.type"] == "process"
    assert found["messaging.destination.name"] == "resize"
    assert found["messaging.message.conversation_id"] == ORIGIN["execution"]
    assert (found["activitypool.attempt"], found["activitypool.state"]) == (2, "Resize")


@pytest.mark.parametrize(
    ("polled", "system", "destination"),
    [("queue:thumbs:waiting", "redis", "thumbs"), ("task-store", "activitypool", "task-store")],
)
async def test_spans_of_other_sources_name_system_and_queue(polled: str, system: str, destination: str) -> None:
    found = attributes(await TracingHarness(polled).run(lambda job: None, {}))

    assert (found["messaging.system"], found["messaging.destination.name"]) == (system, destination)
    assert not any(name.startswith("aws.") for name in found)


def test_span_of_a_task_of_swf_names_type_version_and_execution() -> None:
    scheduled = ScheduledActivity("resize", "2", id="a1", workflow_id="order-1", run_id="r")
    request = TaskRequest(Polled("shop/images"), LeasedTask("token", "word-of-the-input", scheduled), None)
    found = _attributes(request)

    assert (found["messaging.system"], found["messaging.destination.name"]) == ("aws_swf", "resize")
    assert (found["activitypool.activity.version"], found["messaging.message.conversation_id"]) == ("2", "order-1")


def test_span_of_a_task_with_a_type_and_no_execution_names_the_taskbroker() -> None:
    request = TaskRequest(Polled("shop/orders"), LeasedTask("token", "{}", ScheduledActivity("resize", "")), None)
    found = _attributes(request)

    assert (found["messaging.system"], found["messaging.destination.name"]) == ("taskbroker", "resize")


class BrokerSource(MemorySource):
    """A source whose tasks name their trace beside their input, as a taskbroker's do."""

    async def lease(self, worker_name: str) -> LeasedTask | None:
        """Return the next task."""
        task = await super().lease(worker_name)
        return task and replace(task, activity=ScheduledActivity("resize", "", "id", traceparent=TRACEPARENT))


async def test_span_of_a_brokers_task_belongs_to_the_trace_of_its_headers() -> None:
    harness = TracingHarness()
    harness.source = BrokerSource("shop/orders")
    span = await harness.run(lambda job: None, {"n": 1})

    assert span.context is not None
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}-{span.parent.span_id:016x}" == TRACEPARENT[3:52]
    assert attributes(span)["messaging.system"] == "taskbroker"


async def test_without_a_named_trace_a_task_begins_one() -> None:
    span = await TracingHarness().run(lambda job: None, {})

    assert span.parent is None


def raises(job: Any) -> None:
    try:
        raise KeyError("the part")
    except KeyError as error:
        raise ValueError("no such picture") from error


@pytest.mark.parametrize(
    ("failures", "message", "trace_shown"),
    [("traceback", "no such picture", True), ("message", "no such picture", False), ("name", None, False)],
)
async def test_failure_is_recorded_as_far_as_logs_say_it(
    failures: str, message: str | None, trace_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(Env.LOG_FAILURES, failures)
    span = await TracingHarness().run(raises, {})
    (event,) = span.events
    said = dict(event.attributes or {})

    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, message)
    assert (attributes(span)["error.type"], said["exception.type"]) == ("ValueError", "ValueError")
    assert said.get("exception.message") == message
    assert ("the part" in str(said.get("exception.stacktrace", ""))) is trace_shown
    assert "runtime/call_chain.py" not in str(said)


async def test_error_type_is_the_name_under_which_the_task_fails() -> None:
    def refuses(job: Any) -> None:
        raise TaskFailed("Resize.NotAnImage", "it is a text")

    span = await TracingHarness().run(refuses, {})

    assert attributes(span)["error.type"] == "Resize.NotAnImage"
    assert dict(span.events[0].attributes or {})["exception.type"] == "activity_worker.errors.TaskFailed"


async def test_failure_as_an_answer_is_a_failed_span() -> None:
    async def answers(request: Any, respond: Any) -> None:
        await respond.failure("Resize.TooLarge", "over 10 MB")

    span = await TracingHarness().run(answers, {})

    assert (attributes(span)["error.type"], span.status.description) == ("Resize.TooLarge", "over 10 MB")
    assert span.events == ()


async def test_input_that_does_not_fit_is_named_without_its_value() -> None:
    async def typed(job: dict[str, int]) -> None: ...

    span = await TracingHarness().run(typed, {"width": "word-of-the-input"})

    assert attributes(span)["error.type"] == "ActivityPool.InputInvalid"
    assert "word-of-the-input" not in span.to_json()


async def test_task_that_is_handed_over_has_not_failed() -> None:
    async def hands_over(job: Any) -> None:
        raise ConcludeLater

    span = await TracingHarness().run(hands_over, {})

    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("plain", [True, False])
async def test_spans_of_the_handler_are_inside_of_the_tasks(plain: bool) -> None:
    harness = TracingHarness()
    tracer = harness.provider.get_tracer("handler")

    def work() -> None:
        with tracer.start_as_current_span("fetch"):
            pass

    async def works(job: Any) -> None:
        work()

    harness.app.activity(name="resize")((lambda job: work()) if plain else works)
    harness.source.put("{}")
    await Slot(harness.source, harness.app).run_once()
    inner, outer = harness.exporter.get_finished_spans()

    assert inner.parent is not None
    assert outer.context is not None
    assert inner.parent.span_id == outer.context.span_id


async def test_handler_finds_the_ids_of_its_span_among_the_log_keys() -> None:
    seen: dict[str, Any] = {}

    def looks(job: Any, ctx: Context) -> None:
        seen.update(ctx.log_keys)

    span = await TracingHarness().run(looks, {})

    assert span.context is not None
    assert seen == {"trace_id": f"{span.context.trace_id:032x}", "span_id": f"{span.context.span_id:016x}"}


@pytest.mark.parametrize(
    ("variables", "on"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "shop"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_variables_turn_tracing_on(variables: dict[str, str], on: bool) -> None:
    assert tracing_is_on(variables) is on


@pytest.mark.parametrize("endpoint", ["", "http://127.0.0.1:9"])
def test_off_costs_no_import(endpoint: str) -> None:
    code = (
        "import sys; from activity_worker import Activities; from activity_worker.middleware import trace_calls\n"
        "app = Activities(); trace_calls(app)\n"
        "print(len(app.middlewares), len(app.resources), any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_TRACES_EXPORTER": "" if endpoint else "none"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout.split() == (["1", "1", "True"] if endpoint else ["0", "0", "False"])


def test_missing_packages_are_named_with_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(ImportError, match=r"pip install 'activitypool\[otel\]'"):
        trace_calls(Activities())


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"OTEL_TRACES_EXPORTER": "carrier-pigeon"}, "OTEL_TRACES_EXPORTER='carrier-pigeon': no installed package"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL='grpc': no installed package"),
    ],
)
def test_exporter_that_is_not_installed_is_named(variables: dict[str, str], message: str) -> None:
    with pytest.raises(TracingError, match=message):
        _make_provider(variables)


@pytest.mark.parametrize(
    ("variables", "service"),
    [({}, "resize"), ({"OTEL_SERVICE_NAME": "shop"}, "shop"), ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=a"}, "a")],
)
def test_pool_and_pod_are_attributes_of_the_process(
    variables: dict[str, str], service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    pod: dict[str, str] = {Env.POOL: "resize", Env.POD_NAMESPACE: "media", Env.POD_NAME: "resize-1", Env.POD_UID: "uid"}
    provider = _make_provider({"OTEL_TRACES_EXPORTER": "console", **pod, **variables})
    found = provider.resource.attributes
    provider.shutdown()

    assert found["service.name"] == service
    assert (found["k8s.namespace.name"], found["k8s.pod.name"]) == ("media", "resize-1")
