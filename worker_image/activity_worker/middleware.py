"""Middleware for a registry: async generators around each call of a handler. Write your own in the same way.

    app.middleware(log_calls)
    app.middleware(measure_calls(prometheus_client.REGISTRY))
    trace_calls(app)

They never see a handler's input; its output reaches them and is not looked at.
"""

import logging
import time
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

from activity_worker.errors import error_name
from activity_worker.runtime.context import Context
from activity_worker.tracing import trace_calls

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["Middleware", "log_calls", "measure_calls", "trace_calls"]

_log = logging.getLogger(__name__)

Middleware = Callable[[Context], AsyncGenerator[None, Any]]


async def log_calls(ctx: Context) -> AsyncGenerator[None, Any]:
    """Log each call's end: its seconds, and the name of its error. For the library: a worker has such lines already."""
    started = time.perf_counter()
    facts: dict[str, object] = {"lease": ctx.lease, "task": ctx.request.activity}
    try:
        yield
    except BaseException as error:
        facts |= {"error": error_name(error)}
        raise
    finally:
        facts["seconds"] = round(time.perf_counter() - started, 3)
        _log.info("handler raised" if "error" in facts else "handler returned", extra={"facts": facts})


def measure_calls(registry: "CollectorRegistry") -> Middleware:
    """Return a middleware that observes the seconds of each call by activity and outcome (`returned`, `raised`).

    The histogram is `activity_handler_duration_seconds`. For the library, whose process serves its own metrics: the
    `/metrics` of a worker are those of its supervisor, which runs no handler.
    """
    from prometheus_client import Histogram  # noqa: PLC0415 - only who measures needs it

    seconds = Histogram(
        "activity_handler_duration_seconds",
        "Seconds of a handler's calls.",
        labelnames=("activity", "outcome"),
        registry=registry,
    )

    async def measured(ctx: Context) -> AsyncGenerator[None, Any]:
        started, outcome = time.perf_counter(), "raised"
        try:
            yield
            outcome = "returned"
        finally:
            seconds.labels(ctx.request.activity, outcome).observe(time.perf_counter() - started)

    return measured
