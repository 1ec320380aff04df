"""Faults that only workers or nodes detect: polls that fail, starts that fail, volumes that are missing."""

from dataclasses import replace
from typing import Any

import pytest

from activity_operator.api.conditions import Reason
from activity_operator.api.spec import PoolSpec
from activity_operator.core.decide import decide
from activity_operator.core.decision import EmitEvent, ScalingMemory
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import BacklogCount, Observation, SourceFacts, SourceProblem
from activity_operator.core.status import pool_status
from activity_worker.contract import PollFault, PollTrouble, WorkerState
from tests.unit.activity_operator.core.builders import NOW, busy, counted, observed, pending, pod, pool, worker

SPEC = pool(minWorkers=2, aws={"region": "eu-west-1"})
DENIED = PollTrouble(PollFault.DENIED, "AccessDeniedException", "not authorized")


def conditions_of(
    observation: Observation, spec: PoolSpec = SPEC, memory: ScalingMemory | None = None
) -> dict[str, Any]:
    """Return the conditions by type, with the Warnings under `warnings` and the memory under `memory`."""
    pods = tuple(replace(pod, revision=revision_of(spec)) for pod in observation.pods)
    observation = replace(observation, pods=pods)
    decision = decide(spec, observation, memory or ScalingMemory())
    listed = pool_status(spec, observation, decision, None, ())["conditions"]
    warnings = [a.reason for a in decision.actions if isinstance(a, EmitEvent) and a.kind == "Warning"]
    by_type = {condition["type"]: condition for condition in listed}
    return {**by_type, "warnings": warnings, "memory": decision.memory}


@pytest.mark.parametrize(
    ("trouble", "reason", "words"),
    [
        (DENIED, Reason.ACCESS_DENIED, "(ServiceAccount default), or correct its credentials (AccessDeniedException"),
        (PollTrouble(PollFault.MISSING, "ActivityDoesNotExist"), Reason.ACTIVITY_NOT_FOUND, "does not exist in eu-"),
        (PollTrouble(PollFault.THROTTLED, "ThrottlingException"), Reason.THROTTLED, "ask for a higher quota"),
        (PollTrouble(PollFault.UNREACHABLE, "ReadTimeout"), Reason.BACKEND_UNREACHABLE, "the network's rules"),
        (PollTrouble(PollFault.OTHER, "Strange"), Reason.BACKEND_UNREACHABLE, "(Strange)"),
    ],
)
def test_poll_error_of_all_workers_makes_the_pool_not_ready(trouble: PollTrouble, reason: Reason, words: str) -> None:
    found = conditions_of(observed(worker("w1", poll_trouble=trouble), busy("w2")))

    assert (found["Ready"]["status"], found["Ready"]["reason"]) == ("False", reason)
    assert "w1" in found["Ready"]["message"]
    assert words in found["Ready"]["message"]
    assert found["warnings"] == [reason]
    assert ("Stalled" in found) == (reason in {Reason.ACCESS_DENIED, Reason.ACTIVITY_NOT_FOUND})


@pytest.mark.parametrize(
    ("reason", "stalled"),
    [(Reason.INVALID_SPEC, True), (Reason.SECRET_NOT_FOUND, True), (Reason.BACKEND_UNREACHABLE, False)],
)
def test_source_error_that_a_person_must_fix_is_stalled(reason: Reason, stalled: bool) -> None:
    """A task store's URL with an unknown option passes the CRD's validation."""
    source = SourceFacts(error=SourceProblem(reason, "spec.source.taskStore.url: sslcert cannot be used", NOW))

    assert ("Stalled" in conditions_of(observed(worker("w1"), source=source))) is stalled


REFUSED = SourceFacts(error=SourceProblem(Reason.ACCESS_DENIED, "allow it to the operator's own identity", NOW))


def test_the_refusal_of_a_worker_goes_before_that_of_the_operator() -> None:
    """The operator polls beside the busy worker, and may be refused first: the worker that waits runs no task."""
    before = conditions_of(observed(worker("w1"), busy("w2"), source=REFUSED))
    found = conditions_of(observed(worker("w1", poll_trouble=DENIED), busy("w2"), source=REFUSED))

    assert before["Ready"]["message"] == "allow it to the operator's own identity"
    assert found["Ready"]["message"].startswith("worker w1 may not poll: allow states:GetActivityTask on ")
    assert found["Stalled"]["message"] == found["Ready"]["message"]


def test_what_the_operator_was_refused_by_a_store_goes_first() -> None:
    """The operator reads the Secret's present value, a running worker an older one."""
    found = conditions_of(observed(worker("w1", poll_trouble=DENIED), source=REFUSED), pool(minWorkers=1, **STORE))

    assert found["Ready"]["message"] == "allow it to the operator's own identity"


def test_one_worker_that_can_poll_is_enough() -> None:
    assert conditions_of(observed(worker("w1", poll_trouble=DENIED), worker("w2")))["Ready"]["status"] != "False"


def test_repeated_poll_error_warns_once() -> None:
    first = conditions_of(observed(worker("w1", poll_trouble=DENIED)))
    other_words = replace(DENIED, message="still not authorized")

    assert conditions_of(observed(worker("w1", poll_trouble=other_words)), memory=first["memory"])["warnings"] == []


def test_failed_start_of_one_worker_opens_breaker_beside_running_worker() -> None:
    error = "handler:handle: no module named 'handler'"
    crashed = worker("w1", state=WorkerState.STOPPED, failed_start=error)
    observation = observed(crashed, pod("w1", ready=False, running_since=0.0, last_exit_code=1), worker("w2"))

    found = conditions_of(observation)

    assert (found["Ready"]["reason"], found["warnings"]) == (Reason.WORKER_CRASHED, [Reason.WORKER_CRASHED])
    assert error in found["Ready"]["message"]
    assert found["memory"].breaker.open


def test_image_that_exits_with_0_without_report_has_no_runtime() -> None:
    found = conditions_of(observed(pending("w1", last_exit_code=0, last_exit_reason="Completed")))

    assert found["Ready"]["reason"] == Reason.NO_RUNTIME


@pytest.mark.parametrize(("seconds", "ready"), [(59, "True"), (60, "False")])
def test_pod_without_its_volumes_is_reported_after_a_minute(seconds: float, ready: str) -> None:
    deployment = conditions_of(observed(worker("w1"), pending("w2", unprepared_since=NOW - seconds)))

    found = deployment["Ready"]
    assert (found["status"] == "False") == (ready == "False")
    if ready == "False":
        assert (found["reason"], deployment["warnings"]) == (Reason.WORKERS_NOT_READY, [Reason.WORKERS_NOT_READY])
        assert "kubectl describe pod w2" in found["message"]


@pytest.mark.parametrize(("seconds", "ready"), [(59, "True"), (60, "False")])
def test_pod_on_a_silent_node_is_reported_after_a_minute(seconds: float, ready: str) -> None:
    """Kubernetes replaces such a pod only after five minutes, and a task may wait for it."""
    found = conditions_of(observed(worker("w1"), pending("w2", untaken_since=NOW - seconds)))

    assert (found["Ready"]["status"] == "False") == (ready == "False")
    if ready == "False":
        assert (found["Ready"]["reason"], found["warnings"]) == (Reason.WORKERS_NOT_READY, [Reason.WORKERS_NOT_READY])
        assert "pod w2" in found["Ready"]["message"]
        assert "that node Ready?" in found["Ready"]["message"]


def test_unschedulable_pod_is_a_warning() -> None:
    found = conditions_of(observed(pending("w1", unschedulable="0/3 nodes are available")))

    assert (found["Ready"]["reason"], found["warnings"]) == (
        Reason.WORKERS_UNSCHEDULABLE,
        [Reason.WORKERS_UNSCHEDULABLE],
    )


STORE = {"source": {"taskStore": {"urlSecretRef": {"name": "orders", "key": "url"}}}, "activityArn": None}


@pytest.mark.parametrize(
    ("known", "words"),
    [(counted(3), "is newer than the pod, delete the pod; else"), ((), "correct user, password or rights in Secret")],
    ids=["the operator counts", "no count"],
)
def test_denied_poll_names_an_outdated_pod_or_a_wrong_secret(known: tuple[BacklogCount, ...], words: str) -> None:
    """A running worker keeps the Secret's old value, so after a correction the message asks to delete the pod."""
    refused = worker("w1", poll_trouble=PollTrouble(PollFault.DENIED, "InvalidPasswordError"))
    found = conditions_of(observed(refused, source=SourceFacts(counts=known)), pool(minWorkers=1, **STORE))["Ready"]

    assert found["reason"] == Reason.ACCESS_DENIED
    assert words in found["message"]
    assert "Secret orders, key url" in found["message"]


def test_pool_that_shares_its_activity_warns_once() -> None:
    shared = observed(busy("w1"), sharing_pools=("team/other",))
    found = conditions_of(shared)

    assert "ActivityShared" in found["warnings"]
    assert "ActivityShared" not in conditions_of(shared, memory=found["memory"])["warnings"]


def test_missing_reports_are_a_fault_only_in_a_settled_term() -> None:
    missing = observed(busy("w1"), report_path_problem="no report for 20 s")

    assert "ReportsMissing" not in conditions_of(replace(missing, leader_since=NOW - 5))["warnings"]
    assert "ReportsMissing" in conditions_of(replace(missing, leader_since=NOW - 600))["warnings"]


def test_new_and_paused_pools_are_not_reported_as_failed() -> None:
    first, paused = conditions_of(observed())["Ready"], conditions_of(observed(), pool(paused=True))["Ready"]

    assert (first["status"], first["reason"]) == ("Unknown", Reason.PENDING)
    assert (paused["status"], paused["reason"]) == ("True", Reason.PAUSED)
