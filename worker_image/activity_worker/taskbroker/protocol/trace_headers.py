"""PURE: the trace that a task's headers name, in the form of W3C Trace Context.

Producers with OpenTelemetry send `traceparent` and `tracestate`. The published client sends `sentry-trace`, which has
the same ids in another form.
"""

import re
from collections.abc import Mapping
from typing import Final

#: The longest `tracestate` that is passed on: what W3C Trace Context asks of every platform.
MAX_TRACESTATE_LENGTH: Final = 512
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_SENTRY_TRACE: Final = re.compile(r"((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})(?:-([01]))?")


def trace_of_headers(headers: Mapping[str, str]) -> tuple[str, str]:
    """Return `traceparent` and `tracestate`; "" for what the headers do not say, or say in another form.

    `traceparent` comes before `sentry-trace`. A `sentry-trace` that leaves open whether its trace is sampled counts as
    sampled, so that the worker's own sampler decides.
    """
    if not headers:
        return "", ""
    named = {name.lower(): value.strip() for name, value in headers.items()}
    if _TRACEPARENT.fullmatch(parent := named.get("traceparent", "")):
        state = named.get("tracestate", "")
        return parent, state if len(state) <= MAX_TRACESTATE_LENGTH else ""
    if found := _SENTRY_TRACE.fullmatch(named.get("sentry-trace", "")):
        trace_id, span_id, sampled = found.groups()
        return f"00-{trace_id}-{span_id}-{'00' if sampled == '0' else '01'}", ""
    return "", ""
