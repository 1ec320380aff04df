"""Notes about runners' calls, and the metrics made from them."""

import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from activity_worker.steps.model import transitions
from activity_worker.steps.model.child_protocol import InstanceClaim, parse_token
from activity_worker.steps.model.definition import Definition
from activity_worker.steps.model.definition_parser import parse
from activity_worker.steps.model.errors import FinalError, StepError, record_of
from activity_worker.steps.model.instance import Instance, Lost, Outcome, Raised, Returned, create_instance
from activity_worker.steps.runner.metrics import StepMetrics
from activity_worker.steps.runner.observer import CallSummary, summarize_call

RETRIED = {"method": "m", "retry": True, "reverse": "r"}
FAILED, REFUSED = Raised(record_of(StepError("x"))), Raised(record_of(FinalError("x")))


def started(*steps: Any) -> tuple[Definition, Instance]:
    definition = parse({"name": "t", "steps": list(steps)})
    made = create_instance(definition, {"card": "ruby-moon"}, now=100.0)
    return definition, transitions.taken(definition, made, 100.0, 60.0, canceled=False)


def after(definition: Definition, instance: Instance, outcome: Outcome) -> Instance:
    return transitions.ended(definition, instance, outcome, 101.0, 60.0, canceled=False)


@pytest.mark.parametrize(
    ("steps", "outcomes", "expected"),
    [
        ([RETRIED, "m"], [Returned()], {"outcome": "returned"}),
        ([RETRIED, "m"], [FAILED], {"outcome": "raised", "again": True}),
        (["m"], [Returned()], {"outcome": "returned", "completed": "succeeded"}),
        (["m"], [REFUSED], {"outcome": "raised", "completed": "failed", "turned_back": True}),
        ([RETRIED, "m"], [Returned(), REFUSED], {"outcome": "raised", "turned_back": True}),
        (
            [RETRIED, "m"],
            [Returned(), REFUSED, Returned()],
            {"sub_step": "reverse", "outcome": "returned", "completed": "failed"},
        ),
    ],
)
def test_note_of_a_call_has_its_outcome_and_consequences(
    steps: list[Any], outcomes: list[Outcome], expected: dict[str, Any]
) -> None:
    definition, instance = started(*steps)
    for outcome in outcomes:
        before, instance = instance, after(definition, instance, outcome)

    plain = {"task": "t", "sub_step": "method", "seconds": 2.5, "again": False, "turned_back": False, "completed": ""}
    note = summarize_call(before, outcome, instance, 2.5)
    assert note.to_wire() == {**plain, **expected}
    assert CallSummary.from_wire(json.loads(json.dumps(note.to_wire()))) == note


def test_note_of_a_lost_call_announces_a_retry() -> None:
    definition, instance = started(RETRIED)

    note = summarize_call(instance, Lost(), transitions.taken(definition, instance, 200.0, 60.0, canceled=False), 0.0)
    assert (note.outcome, note.again) == ("lost", True)


def test_claim_counts_its_delay_and_the_lost_call_before_it() -> None:
    registry = CollectorRegistry()
    metrics = StepMetrics(registry)
    metrics.set_tasks(["t"])
    definition, instance = started(RETRIED)
    metrics.claimed(instance, transitions.taken(definition, instance, 170.0, 60.0, canceled=False), 170.0, 0.004)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("activity_worker_step_calls_total", task="t", sub_step="method", outcome="lost") == 1
    assert value("activity_worker_step_retries_total", task="t", sub_step="method") == 1
    assert value("activity_worker_instance_start_delay_seconds_sum") == 10.0
    assert value("activity_worker_instance_claim_duration_seconds_sum") == 0.004
    assert value("activity_worker_step_call_duration_seconds_count", sub_step="method") is None


def test_unknown_tasks_share_one_label() -> None:
    registry = CollectorRegistry()
    metrics = StepMetrics(registry)
    metrics.set_tasks(["t"])
    for number in range(50):
        metrics.count_call(CallSummary(f"made-up-{number}", "method", "returned", completed="succeeded"))
    shown = generate_latest(registry).decode()

    assert 'activity_worker_instances_total{outcome="succeeded",task="other"} 50.0' in shown
    assert 'activity_worker_instances_total{outcome="failed",task="t"} 0.0' in shown
    assert "made-up" not in shown


@pytest.mark.parametrize(
    "change",
    [{"sub_step": "made up"}, {"outcome": []}, {"completed": "x"}, {"seconds": "1"}, {"seconds": -1.0}, {"task": None}],
)
def test_malformed_note_is_refused(change: dict[str, Any]) -> None:
    wire = CallSummary("t", "method", "returned").to_wire()
    with pytest.raises(ValueError, match="no note"):
        CallSummary.from_wire({**wire, **change})
    with pytest.raises(ValueError, match="no note"):
        CallSummary.from_wire({"task": "t"})


def test_claim_is_encoded_as_token_and_input() -> None:
    claim = InstanceClaim('an "id" of/its own', "pod:abcde-1f", 7, 60.0)

    assert InstanceClaim.from_input(json.loads(claim.input)) == claim
    assert parse_token(claim.token) == (claim.instance_id, claim.runner)
