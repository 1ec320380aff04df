"""One OpenTelemetry span for each task, by a middleware of a registry.

The libraries are of the extra `otel`. Without the variables that name an exporter nothing of them is imported, and the
registry stays as it is. Names of spans and attributes are those of the semantic conventions for messaging and for AWS.
"""

import asyncio
import importlib.metadata
import importlib.util
import logging
import os
import re
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from activity_worker.contract import VERSION, Env
from activity_worker.errors import ActivityError, ConcludeLater, TaskCancelled, error_name
from activity_worker.handlers.registry import Activities
from activity_worker.runtime.cancellation import CANCELLATION_ERRORS, CancelReason
from activity_worker.runtime.context import Context
from activity_worker.runtime.failure import Failure, failure_of
from activity_worker.task import TaskRequest

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer, TracerProvider

#: How long a process that stops waits for its last spans: less than the 5 s that it has for all of its resources.
FLUSH_SECONDS: Final = 3.0
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
#: Entry points of the exporters for OTLP. The extra has the first one's package.
_PROTOCOLS: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
#: Attributes of the process, by the variables that the operator sets.
_OF_POD: Final = (
    ("k8s.namespace.name", Env.POD_NAMESPACE),
    ("k8s.pod.name", Env.POD_NAME),
    ("k8s.pod.uid", Env.POD_UID),
)
_EXECUTION: Final = re.compile(r"(arn:[^:]+:states:[^:]*:[^:]*):execution:([^:]+):[^:]+")

_log = logging.getLogger(__name__)


class TracingError(ActivityError):
    """The variables ask for an exporter that cannot be had. The message names the variable, the value and the fix."""


def trace_calls(app: Activities, *, provider: "TracerProvider | None" = None) -> None:
    """Trace the tasks of a registry: one span around each call, in the trace that the task's input names.

    Call it before you add other middleware and resources: the span is then around the middleware, and the last spans
    leave after the resources are closed. `provider` is a tracer provider that you set up and flush yourself. Without
    it, spans go where the usual `OTEL_*` variables say; where these name no exporter, nothing is traced and no package
    is imported (`tracing_is_on`).

    Raises `ImportError` where the packages of the extra `otel` are missing.
    """
    if provider is None and not tracing_is_on(os.environ):
        return
    if importlib.util.find_spec("opentelemetry") is None or importlib.util.find_spec("opentelemetry.sdk") is None:
        raise ImportError("trace_calls needs packages that are not installed: pip install 'activitypool[otel]'")
    spans = _Spans(provider, os.environ.get(Env.LOG_FAILURES) or "traceback")
    if provider is None:
        app.resource(name="tracer_provider")(spans.opened)
    app.middleware(spans.around_call)


def tracing_is_on(env: Mapping[str, str]) -> bool:
    """Tell whether the variables name an exporter of spans: `OTEL_TRACES_EXPORTER`, or an OTLP endpoint."""
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = env.get("OTEL_TRACES_EXPORTER", "").strip()
    return exporter != "none" if exporter else any(env.get(name) for name in _ENDPOINTS)


class _Spans:
    """The spans of one registry. `failures`, one of `LOG_FAILURES`, is how much a span says about an exception."""

    def __init__(self, provider: "TracerProvider | None", failures: str) -> None:
        self._failures = failures
        self._tracer: Tracer | None = None if provider is None else _tracer(provider)

    async def opened(self) -> AsyncIterator[Any]:
        """Yield the provider of this process; at the end send its last spans, which takes `FLUSH_SECONDS` at most."""
        provider = _provider_of_process(os.environ)
        self._tracer = _tracer(provider)
        yield provider
        flush = getattr(provider, "force_flush", None)
        if flush is not None and not await _in_daemon_thread(flush, FLUSH_SECONDS):
            _log.warning("the last spans were not sent within %g s", FLUSH_SECONDS)

    async def around_call(self, ctx: Context) -> AsyncGenerator[None, Any]:
        """Make the span of one call, and give the task's log lines its ids."""
        from opentelemetry.trace import SpanKind  # noqa: PLC0415 - imported only where tasks are traced
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        assert self._tracer is not None  # noqa: S101 - the resource is open
        request = ctx.request
        carrier = {"traceparent": request.origin.traceparent, "tracestate": request.origin.tracestate}
        with self._tracer.start_as_current_span(
            f"process {request.activity}",
            context=TraceContextTextMapPropagator().extract(carrier),
            kind=SpanKind.CONSUMER,
            attributes=_attributes(request),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            ids = span.get_span_context()
            ctx.log_keys.update(trace_id=f"{ids.trace_id:032x}", span_id=f"{ids.span_id:016x}")
            try:
                yield
            except BaseException as error:
                _record_exception(span, error, ctx, self._failures)
                raise
            response = ctx.response
            if response is not None and response.result == "failure":
                _record_failure(span, Failure(response.error or "failure", response.cause), self._failures)


def _attributes(request: TaskRequest) -> dict[str, str | int]:
    """Return what a span says about its task. Nothing of it is the task's input."""
    polled, origin = request.worker.activity_arn, request.origin
    attributes: dict[str, str | int] = {
        "messaging.system": _system(request),
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": request.activity,
        "messaging.client.id": request.worker.worker_name,
        "activitypool.lease": request.lease_id,
        "activitypool.attempt": origin.attempt,
    }
    if polled.startswith("arn:"):
        attributes["aws.step_functions.activity.arn"] = polled
    if match := _EXECUTION.fullmatch(origin.execution):
        attributes["aws.step_functions.state_machine.arn"] = f"{match[1]}:stateMachine:{match[2]}"
    if request.execution:
        attributes["messaging.message.conversation_id"] = request.execution
    if origin.state:
        attributes["activitypool.state"] = origin.state
    if request.task.activity is not None and request.task.activity.version:
        attributes["activitypool.activity.version"] = request.task.activity.version
    return attributes


def _system(request: TaskRequest) -> str:
    if request.worker.activity_arn.startswith("arn:"):
        return "aws_step_functions"
    if request.task.activity is not None:
        # Tasks of SWF belong to a workflow execution; a taskbroker names the type of its tasks alone.
        return "aws_swf" if request.task.activity.workflow_id else "taskbroker"
    return "redis" if request.worker.activity_arn.startswith("queue:") else "activitypool"


def _record_exception(span: "Span", error: BaseException, ctx: Context, failures: str) -> None:
    """Record an exception, unless it is how a handler hands its task over or agrees to a cancellation."""
    if isinstance(error, ConcludeLater):
        return
    reason = ctx.signal.reason
    if reason is CancelReason.REQUESTED and isinstance(error, TaskCancelled | asyncio.CancelledError):
        return
    failure = failure_of(error)
    if reason is not None and isinstance(error, asyncio.CancelledError):
        failure = Failure(error_name(CANCELLATION_ERRORS[reason]("")), f"cancelled: {reason.value}")
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    event = {"exception.type": name}
    if failures != "name":
        event["exception.message"] = failure.message
    if failures == "traceback" and failure.traceback:
        event["exception.stacktrace"] = failure.traceback
    span.add_event("exception", event)
    _record_failure(span, failure, failures)


def _record_failure(span: "Span", failure: Failure, failures: str) -> None:
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - as above

    span.set_attribute("error.type", failure.name)
    span.set_status(Status(StatusCode.ERROR, None if failures == "name" else failure.message))


def _tracer(provider: "TracerProvider") -> "Tracer":
    return provider.get_tracer("activity_worker", VERSION)


def _provider_of_process(env: Mapping[str, str]) -> "TracerProvider":
    """Return the process's provider: the one that the user's code has set, or a new one as the variables say.

    The new one becomes the process's own, so that instrumented libraries add their spans to those of the tasks.
    """
    from opentelemetry import trace  # noqa: PLC0415 - as above

    found = trace.get_tracer_provider()
    if not isinstance(found, trace.ProxyTracerProvider):
        return found
    made = _make_provider(env)
    trace.set_tracer_provider(made)
    return made


def _make_provider(env: Mapping[str, str]) -> "SdkTracerProvider":
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    about = {key: env[variable] for key, variable in _OF_POD if env.get(variable)}
    if env.get(Env.POOL) and not env.get("OTEL_SERVICE_NAME") and "service.name=" not in _resource(env):
        about["service.name"] = env[Env.POOL]
    # The resource's end sends what is left, within a bound; the library's own exit handler has none.
    provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
    for name in (env.get("OTEL_TRACES_EXPORTER") or "otlp").split(","):
        provider.add_span_processor(BatchSpanProcessor(_exporter(name.strip(), env)))
    return provider


def _resource(env: Mapping[str, str]) -> str:
    return env.get("OTEL_RESOURCE_ATTRIBUTES", "")


def _exporter(name: str, env: Mapping[str, str]) -> "SpanExporter":
    variable, value = "OTEL_TRACES_EXPORTER", name
    if name == "otlp":
        variable = next((each for each in _PROTOCOL_VARIABLES if env.get(each)), _PROTOCOL_VARIABLES[-1])
        value = env.get(variable) or "http/protobuf"
        name = _PROTOCOLS.get(value, value)
    if name == _PROTOCOLS["http/protobuf"]:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - as above

        return OTLPSpanExporter()
    found = list(importlib.metadata.entry_points(group="opentelemetry_traces_exporter", name=name))
    if not found:
        known = importlib.metadata.entry_points(group="opentelemetry_traces_exporter").names
        raise TracingError(
            f"{variable}={value!r}: no installed package has this exporter of spans; install it, or use one of"
            f" {', '.join(sorted(known))}"
        )
    exporter: SpanExporter = found[0].load()()
    return exporter


_PROTOCOL_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


async def _in_daemon_thread(function: Any, seconds: float) -> bool:
    """Call a function that may block; return whether it ended in time. Its thread does not keep a process alive."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def work() -> None:
        try:
            function()
        finally:
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=work, name="last-spans", daemon=True).start()
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        return False
    return True
