"""The list of a pool's faults, in the order in which a person should look at them."""

from dataclasses import replace
from typing import Any

import pytest

from activity_operator.core.decision import Breaker
from activity_operator.core.not_ready import NotReadyReason, not_ready_reasons, recheck_times
from activity_operator.core.observation import SourceFacts, SourceProblem
from activity_operator.core.situation import situation_of
from activity_worker.contract import WorkerState
from tests.unit.activity_operator.core.builders import NOW, observed, pending, pod, pool, worker

EVERYTHING: dict[str, Any] = {
    "refusal": "not your ARN",
    "rejected": "no such field",
    "rejected_reason": "PodTemplateRejected",
    "source": SourceFacts(error=SourceProblem("AccessDenied", "allow it", 1.0)),
    "authentication_problem": "no TokenReviews",
}
OPEN = Breaker(1, 1.0, "ImagePullFailed", "pod w1: no such image")


def faults_with(breaker: Breaker = OPEN, **more: Any) -> list[NotReadyReason]:
    observation = observed(pending(unschedulable="no node fits"), worker(reported_at=NOW - 30.0), **more)
    return list(not_ready_reasons(situation_of(pool(), observation), breaker))


def test_faults_that_forbid_all_work_come_first_and_cluster_waits_last() -> None:
    assert [(fault.reason, fault.message) for fault in faults_with(**EVERYTHING)] == [
        ("TenancyDenied", "not your ARN"),
        ("PodTemplateRejected", "no such field"),
        ("AccessDenied", "allow it"),
        ("ReportsUnauthenticated", "no TokenReviews"),
        ("ImagePullFailed", "pod w1: no such image"),
        ("WorkersUnschedulable", "pod n1: no node fits"),
    ]
    assert [fault.topic for fault in faults_with(Breaker())] == ["blocked-pod"]


def test_only_a_changed_refusal_changes_its_fault_key() -> None:
    before = {fault.topic: fault.key for fault in faults_with(**EVERYTHING)}
    changed = EVERYTHING | {"refusal": "not your role", "authentication_problem": "no TokenReviews: 503"}
    after = {fault.topic: fault.key for fault in faults_with(replace(OPEN, message="pod w2: no such image"), **changed)}

    assert {topic for topic in before if before[topic] != after[topic]} == {"refusal"}


@pytest.mark.parametrize(
    ("unheard", "facts"),
    [
        (False, (worker(reported_at=NOW - 9.0),)),
        (True, (worker(reported_at=NOW - 10.0),)),
        (False, (worker(reported_at=NOW - 29.0, interval_seconds=10.0),)),
        (True, (worker(), worker("w2", reported_at=NOW - 10.0))),
        (False, (worker(reported_at=NOW - 99.0, state=WorkerState.STOPPED),)),
        (False, (pod(running_since=NOW - 9.0),)),
        (True, (pod(running_since=NOW - 10.0),)),
        (False, (pending(),)),
        (False, ()),
    ],
)
def test_failing_reviews_concern_only_pools_with_unheard_workers(unheard: bool, facts: tuple[Any, ...]) -> None:
    """A worker whose token is still believed reports as before."""
    situation = situation_of(pool(), observed(*facts, authentication_problem="no TokenReviews"))
    found = [reason for reason in not_ready_reasons(situation, Breaker()) if reason.topic == "reports"]

    assert bool(found) == unheard


def test_pool_is_decided_again_while_reviews_fail() -> None:
    def look_again_in(*facts: Any) -> float | None:
        observation = observed(*facts, authentication_problem="no TokenReviews")
        return min((at - NOW for at in recheck_times(situation_of(pool(), observation))), default=None)

    assert look_again_in(worker(reported_at=NOW - 4.0)) == 6.0
    assert look_again_in(worker(reported_at=NOW - 40.0)) == 5.0
    assert look_again_in() is None
