"""A missing activity or right makes a pool not Ready in every mode, unless polls show that the pool works."""

from typing import Any

import pytest

from activity_operator.api.conditions import ConditionType
from activity_operator.api.spec import PoolSpec
from activity_operator.core.decide import decide
from activity_operator.core.decision import EmitEvent, ScalingMemory
from activity_operator.core.observation import Observation, SourceFacts, SourceProblem, WorkerFacts
from activity_operator.core.status import pool_status
from activity_worker.contract import PollFault, PollTrouble, WorkerState
from tests.unit.activity_operator.core.builders import NOW, observed, pod, pool, worker

BEGAN = NOW - 600.0
MODES = ["Sentinel", "CloudWatch", "None"]
FIXES = {
    "ActivityNotFound": "create it",
    "WrongRegion": "correct spec.aws.region",
    "AccessDenied": "allow states:DescribeActivity",
    "WrongAccount": "name a role",
}


def refused(reason: str, **more: Any) -> SourceFacts:
    return SourceFacts(preflight=SourceProblem(reason, FIXES.get(reason, "no answer"), BEGAN), **more)


def in_mode(mode: str, **more: Any) -> PoolSpec:
    return pool(minWorkers=1, activation={"mode": mode}, **more)


def ready(spec: PoolSpec, observation: Observation) -> tuple[str, str, str]:
    """Return status, reason and message of Ready."""
    decision = decide(spec, observation, ScalingMemory())
    for condition in pool_status(spec, observation, decision, {}, ())["conditions"]:
        if condition["type"] == ConditionType.READY:
            return condition["status"], condition["reason"], condition["message"]
    raise AssertionError("no Ready")


def events(spec: PoolSpec, observation: Observation) -> list[EmitEvent]:
    return [one for one in decide(spec, observation, ScalingMemory()).actions if isinstance(one, EmitEvent)]


def at_work(source: SourceFacts, **more: Any) -> Observation:
    """Return an observation of one worker that polls."""
    return observed(pod(), workers=[worker(**more)], source=source)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reason", ["ActivityNotFound", "WrongRegion"])
def test_activity_that_does_not_exist_is_a_fault_in_every_mode(mode: str, reason: str) -> None:
    assert ready(in_mode(mode), observed(source=refused(reason))) == ("False", reason, FIXES[reason])


@pytest.mark.parametrize("reason", ["AccessDenied", "WrongAccount", "BackendUnreachable"])
def test_refused_operator_is_a_fault_only_where_the_operator_needs_rights(reason: str) -> None:
    found = {mode: ready(in_mode(mode), observed(source=refused(reason)))[1] for mode in MODES}

    assert (found["Sentinel"], found["CloudWatch"]) == (reason, reason)
    assert found["None"] not in FIXES


@pytest.mark.parametrize("reason", list(FIXES))
@pytest.mark.parametrize("report", [{"open_polls": 1}, {"open_polls": 0, "busy": 1}], ids=["polls", "works"])
def test_pool_whose_workers_poll_stays_ready(reason: str, report: dict[str, int]) -> None:
    assert ready(in_mode("CloudWatch"), at_work(refused(reason), **report))[0] != "False"


@pytest.mark.parametrize("idle", [0.1, 30.0], ids=["between two polls", "standing by"])
def test_pool_whose_only_worker_stands_by_stays_ready(idle: float) -> None:
    """A poll of the operator, without an answer so far, is open for it: Ready would change with each task."""
    polls = refused("AccessDenied", open_polls=1, oldest_poll_at=NOW - 10.0)

    assert ready(in_mode("Sentinel"), at_work(polls, open_polls=0, idle_seconds=idle))[0] != "False"
    assert ready(in_mode("Sentinel"), at_work(polls, open_polls=0, idle_seconds=idle, answers=0))[0] == "False"


def test_worker_whose_polls_fail_proves_nothing() -> None:
    trouble = PollTrouble(PollFault.MISSING, "ActivityDoesNotExist", "no")
    observation = at_work(refused("ActivityNotFound"), open_polls=1, poll_trouble=trouble)

    assert ready(in_mode("CloudWatch"), observation)[1] == "ActivityNotFound"


def test_worker_that_is_draining_proves_nothing() -> None:
    observation = at_work(refused("ActivityNotFound"), state=WorkerState.DRAINING)

    assert ready(in_mode("CloudWatch"), observation)[1] == "ActivityNotFound"


@pytest.mark.parametrize(("answered", "status"), [(BEGAN - 1.0, "False"), (BEGAN + 1.0, "Unknown")])
def test_only_a_poll_answered_since_shows_that_the_pool_works(answered: float, status: str) -> None:
    source = refused("AccessDenied", observed_at=answered, open_polls=2)

    assert ready(pool(), observed(source=source))[0] == status


def test_right_that_is_missing_while_polls_succeed_is_said_in_an_event() -> None:
    said = events(pool(), at_work(refused("AccessDenied")))

    text = "the pool works, but the operator cannot check its activity: allow states:DescribeActivity"
    assert EmitEvent("Warning", "AccessDenied", text) in said
    assert not [one for one in events(in_mode("None"), at_work(refused("AccessDenied"))) if one.kind == "Warning"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reason", [*FIXES, "BackendUnreachable"])
def test_preflight_never_changes_size_or_polls(mode: str, reason: str) -> None:
    """Tasks in flight on every worker, and a lease that waits: the pool has to grow."""

    def decided(source: SourceFacts) -> tuple[Any, ...]:
        workers: list[WorkerFacts] = [worker("w1", busy=1), worker("w2", busy=1)]
        found = decide(in_mode(mode), observed(pod("w1"), pod("w2"), workers=workers, source=source), ScalingMemory())
        return found.size, found.sentinel, found.directives

    assert decided(refused(reason, held=1)) == decided(SourceFacts(held=1))


@pytest.mark.parametrize("mode", MODES)
def test_activity_is_asked_for_in_every_mode(mode: str) -> None:
    assert decide(in_mode(mode), observed(), ScalingMemory()).sentinel.preflight


@pytest.mark.parametrize(
    ("spec", "observation"),
    [(pool(paused=True), observed()), (pool(), observed(refusal="not your ARN"))],
    ids=["paused", "refused by the policy"],
)
def test_pool_that_may_not_poll_is_not_asked_for(spec: PoolSpec, observation: Observation) -> None:
    assert not decide(spec, observation, ScalingMemory()).sentinel.preflight


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (SourceProblem("ActivityNotFound", "the poll failed", NOW), None),
        (None, PollTrouble(PollFault.MISSING, "ActivityDoesNotExist", "no")),
    ],
    ids=["the operator's polls", "the workers' polls"],
)
def test_fault_that_polls_show_is_reported_once(error: SourceProblem | None, trouble: PollTrouble | None) -> None:
    """The preflight finds it as well. A second Warning says nothing new."""
    observation = at_work(refused("ActivityNotFound", error=error), open_polls=0, answers=0, poll_trouble=trouble)

    assert [one.reason for one in events(in_mode("Sentinel"), observation)].count("ActivityNotFound") == 1
