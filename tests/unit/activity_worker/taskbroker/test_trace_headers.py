"""The trace of a broker's task: W3C Trace Context, or the published client's own header."""

import pytest

from activity_worker.taskbroker.protocol.trace_headers import trace_of_headers

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, ("", "")),
        ({"traceparent": PARENT}, (PARENT, "")),
        ({"Traceparent": f" {PARENT} ", "TraceState": "vendor=1"}, (PARENT, "vendor=1")),
        ({"traceparent": PARENT, "tracestate": "a=" + "b" * 600}, (PARENT, "")),
        ({"sentry-trace": f"{TRACE}-{SPAN}-1", "baggage": "sentry-release=1"}, (PARENT, "")),
        ({"sentry-trace": f"{TRACE}-{SPAN}"}, (PARENT, "")),
        ({"sentry-trace": f"{TRACE}-{SPAN}-0"}, (f"00-{TRACE}-{SPAN}-00", "")),
        ({"sentry-trace": f"{'1' * 32}-{SPAN}-0", "traceparent": PARENT}, (PARENT, "")),
        ({"traceparent": "none", "sentry-trace": f"{TRACE}-{SPAN}-1"}, (PARENT, "")),
        ({"tracestate": "a=1"}, ("", "")),
    ],
)
def test_trace_is_read_from_the_headers_of_each_client(headers: dict[str, str], found: tuple[str, str]) -> None:
    assert trace_of_headers(headers) == found


@pytest.mark.parametrize(
    "headers",
    [
        {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
        {"traceparent": f"00-{TRACE}-{'0' * 16}-01"},
        {"traceparent": f"ff-{TRACE}-{SPAN}-01"},
        {"traceparent": f"{PARENT}-more"},
        {"traceparent": PARENT.upper()},
        {"sentry-trace": f"{TRACE[:31]}-{SPAN}-1"},
        {"sentry-trace": f"{TRACE}-{SPAN}-2"},
        {"sentry-trace": f"{'0' * 32}-{SPAN}-1"},
    ],
)
def test_header_of_another_form_names_no_trace(headers: dict[str, str]) -> None:
    assert trace_of_headers(headers) == ("", "")
