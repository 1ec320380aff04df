"""Faults that only workers or nodes see: workers that cannot poll or cannot start, pods that lack what they mount."""

from dataclasses import replace
from typing import Any

import pytest

from activity_operator.api.conditions import Reason
from activity_operator.api.spec import PoolSpec
from activity_operator.core.decide import decide
from activity_operator.core.decision import Say, ScalingMemory
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import Observation, SourceError, SourceFacts
from activity_operator.core.report import status
from activity_operator.core.signal import Signal
from activity_worker.contract import PollFault, PollTrouble, WorkerState
from tests.unit.activity_operator.core.builders import NOW, busy, coming, counted, pod, pool, seen, worker

SPEC = pool(minWorkers=2, aws={"region": "eu-west-1"})
DENIED = PollTrouble(PollFault.DENIED, "AccessDeniedException", "not authorized")


def told(situation: Observation, spec: PoolSpec = SPEC, memory: ScalingMemory | None = None) -> dict[str, Any]:
    """Return the conditions by type, with the Warnings under `warnings` and the memory under `memory`."""
    pods = tuple(replace(pod, revision=revision_of(spec)) for pod in situation.pods)
    situation = replace(situation, pods=pods)
    decision = decide(spec, situation, memory or ScalingMemory())
    conditions = status(spec, situation, decision, None, ())["conditions"]
    warnings = [a.reason for a in decision.actions if isinstance(a, Say) and a.kind == "Warning"]
    said = {condition["type"]: condition for condition in conditions}
    return {**said, "warnings": warnings, "memory": decision.memory}


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
def test_a_pool_whose_workers_cannot_poll_says_so(trouble: PollTrouble, reason: Reason, words: str) -> None:
    said = told(seen(worker("w1", poll_trouble=trouble), busy("w2")))

    assert (said["Ready"]["status"], said["Ready"]["reason"]) == ("False", reason)
    assert "w1" in said["Ready"]["message"]
    assert words in said["Ready"]["message"]
    assert said["warnings"] == [reason]
    assert ("Stalled" in said) == (reason in {Reason.ACCESS_DENIED, Reason.ACTIVITY_NOT_FOUND})


@pytest.mark.parametrize(
    ("reason", "stalled"),
    [(Reason.INVALID_SPEC, True), (Reason.SECRET_NOT_FOUND, True), (Reason.BACKEND_UNREACHABLE, False)],
)
def test_what_only_a_person_can_mend_is_stalled(reason: Reason, stalled: bool) -> None:
    """A task store's URL whose option nobody knows gets by the CRD's rules."""
    source = SourceFacts(error=SourceError(reason, "spec.source.taskStore.url: sslcert cannot be used", NOW))

    assert ("Stalled" in told(seen(worker("w1"), source=source))) is stalled


def test_one_worker_that_can_poll_is_enough() -> None:
    assert told(seen(worker("w1", poll_trouble=DENIED), worker("w2")))["Ready"]["status"] != "False"


def test_the_same_trouble_warns_once() -> None:
    first = told(seen(worker("w1", poll_trouble=DENIED)))
    other_words = replace(DENIED, message="still not authorized")

    assert told(seen(worker("w1", poll_trouble=other_words)), memory=first["memory"])["warnings"] == []


def test_a_worker_that_ended_before_it_worked_is_a_failed_start_and_not_replaced_by_another() -> None:
    error = "handler:handle: no module named 'handler'"
    crashed = worker("w1", state=WorkerState.STOPPED, failed_start=error)
    situation = seen(crashed, pod("w1", ready=False, running_since=0.0, last_exit_code=1), worker("w2"))

    said = told(situation)

    assert (said["Ready"]["reason"], said["warnings"]) == (Reason.WORKER_CRASHED, [Reason.WORKER_CRASHED])
    assert error in said["Ready"]["message"]
    assert said["memory"].breaker.open


def test_an_image_that_ends_well_without_a_report_is_not_ours() -> None:
    said = told(seen(coming("w1", last_exit_code=0, last_exit_reason="Completed")))

    assert said["Ready"]["reason"] == Reason.NO_RUNTIME


@pytest.mark.parametrize(("seconds", "ready"), [(59, "True"), (60, "False")])
def test_a_pod_whose_volumes_do_not_come_is_told_after_a_minute(seconds: float, ready: str) -> None:
    deployment = told(seen(worker("w1"), coming("w2", unprepared_since=NOW - seconds)))

    said = deployment["Ready"]
    assert (said["status"] == "False") == (ready == "False")
    if ready == "False":
        assert (said["reason"], deployment["warnings"]) == (Reason.WORKERS_NOT_READY, [Reason.WORKERS_NOT_READY])
        assert "kubectl describe pod w2" in said["message"]


@pytest.mark.parametrize(("seconds", "ready"), [(59, "True"), (60, "False")])
def test_a_pod_whose_node_is_silent_from_its_start_is_told_after_a_minute(seconds: float, ready: str) -> None:
    """Kubernetes waits five minutes before it makes another, and a task may wait for this one."""
    said = told(seen(worker("w1"), coming("w2", untaken_since=NOW - seconds)))

    assert (said["Ready"]["status"] == "False") == (ready == "False")
    if ready == "False":
        assert (said["Ready"]["reason"], said["warnings"]) == (Reason.WORKERS_NOT_READY, [Reason.WORKERS_NOT_READY])
        assert "pod w2" in said["Ready"]["message"]
        assert "that node Ready?" in said["Ready"]["message"]


def test_a_pod_that_no_node_takes_is_a_warning_too() -> None:
    said = told(seen(coming("w1", unschedulable="0/3 nodes are available")))

    assert (said["Ready"]["reason"], said["warnings"]) == (
        Reason.WORKERS_UNSCHEDULABLE,
        [Reason.WORKERS_UNSCHEDULABLE],
    )


STORE = {"source": {"taskStore": {"urlSecretRef": {"name": "orders", "key": "url"}}}, "activityArn": None}


@pytest.mark.parametrize(
    ("known", "words"),
    [(counted(3), "is newer than the pod, delete the pod; else"), ((), "correct user, password or rights in Secret")],
    ids=["the operator counts", "nobody can"],
)
def test_a_worker_that_was_started_with_an_older_url_is_told_from_a_url_that_is_wrong(
    known: tuple[Signal, ...], words: str
) -> None:
    """Who had corrected the Secret was told to correct it, for ever: a worker that runs keeps the old value."""
    refused = worker("w1", poll_trouble=PollTrouble(PollFault.DENIED, "InvalidPasswordError"))
    said = told(seen(refused, source=SourceFacts(signals=known)), pool(minWorkers=1, **STORE))["Ready"]

    assert said["reason"] == Reason.ACCESS_DENIED
    assert words in said["message"]
    assert "Secret orders, key url" in said["message"]


def test_another_pool_of_the_same_activity_is_one_warning() -> None:
    shared = seen(busy("w1"), rivals=("team/other",))
    said = told(shared)

    assert "ActivityShared" in said["warnings"]
    assert "ActivityShared" not in told(shared, memory=said["memory"])["warnings"]


def test_reports_that_a_young_leader_misses_are_no_fault_yet() -> None:
    missing = seen(busy("w1"), suspect="no report for 20 s")

    assert "ReportsMissing" not in told(replace(missing, leader_since=NOW - 5))["warnings"]
    assert "ReportsMissing" in told(replace(missing, leader_since=NOW - 600))["warnings"]


def test_a_pool_before_its_first_deployment_and_a_paused_one_are_not_out_of_order() -> None:
    first, paused = told(seen())["Ready"], told(seen(), pool(paused=True))["Ready"]

    assert (first["status"], first["reason"]) == ("Unknown", Reason.PENDING)
    assert (paused["status"], paused["reason"]) == ("True", Reason.PAUSED)
