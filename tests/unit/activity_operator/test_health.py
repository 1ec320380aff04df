"""Logs of the health probes: changes only, not every request."""

import logging

import pytest

from activity_operator.health import OperatorHealthServer


def test_failed_check_is_logged_when_it_begins_changes_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    wrong: dict[str, str] = {}
    checks = {name: lambda name=name: wrong.get(name, "") for name in ("watch", "sweep")}
    server = OperatorHealthServer(checks, {}, lambda: b"", "", 0)
    caplog.set_level(logging.INFO)
    answers = []
    for now in ({}, {"watch": "60 s"}, {"watch": "65 s"}, {"watch": "70 s", "sweep": "90 s"}, {}, {}):
        wrong.clear()
        wrong.update(now)
        caplog.clear()
        status = server._answer("/livez", checks).status
        answers.append((status, [line.getMessage() for line in caplog.records]))

    assert answers == [
        (200, []),
        (503, ["/livez fails: watch: 60 s"]),
        (503, []),
        (503, ["/livez fails: watch: 70 s\nsweep: 90 s"]),
        (200, ["/livez is well again"]),
        (200, []),
    ]
