"""The middleware that ships with the runtime, around calls of handlers."""

import logging
from typing import Any

import prometheus_client
import pytest

from activity_worker import Activities, MemorySource, Slot
from activity_worker.middleware import log_calls, measure_calls

app_name = "resize"


def handle(job: int) -> int:
    return 10 // job


async def run(app: Activities) -> None:
    """Run a task that returns and one that raises."""
    app.activity(name=app_name)(handle)
    source = MemorySource(f"arn:aws:states:us-east-1:123456789012:activity:{app_name}")
    slot = Slot(source, app)
    source.put("5")
    source.put("0")
    for _ in range(2):
        await slot.run_once()


async def test_calls_are_measured_by_activity_and_outcome() -> None:
    app, registry = Activities(), prometheus_client.CollectorRegistry()
    app.middleware(measure_calls(registry))
    await run(app)

    def count(outcome: str) -> Any:
        labels = {"activity": app_name, "outcome": outcome}
        return registry.get_sample_value("activity_handler_duration_seconds_count", labels)

    assert (count("returned"), count("raised")) == (1.0, 1.0)


async def test_calls_are_logged_with_the_name_of_their_error(caplog: pytest.LogCaptureFixture) -> None:
    app = Activities()
    app.middleware(log_calls)
    with caplog.at_level(logging.INFO, "activity_worker.middleware"):
        await run(app)
    lines = [record for record in caplog.records if record.name == "activity_worker.middleware"]
    facts = [vars(record)["facts"] for record in lines]

    assert [record.getMessage() for record in lines] == ["handler returned", "handler raised"]
    assert [entry.get("error") for entry in facts] == [None, "ZeroDivisionError"]
    assert all({"lease", "task", "seconds"} <= entry.keys() for entry in facts)
