"""The list of a pool's faults, in the order in which a person should look at them."""

from dataclasses import replace
from typing import Any

from activity_operator.core.decision import Breaker
from activity_operator.core.not_ready import NotReadyReason, not_ready_reasons
from activity_operator.core.observation import SourceFacts, SourceProblem
from activity_operator.core.situation import situation_of
from tests.unit.activity_operator.core.builders import observed, pending, pool

EVERYTHING: dict[str, Any] = {
    "refusal": "not your ARN",
    "rejected": "no such field",
    "rejected_reason": "PodTemplateRejected",
    "source": SourceFacts(error=SourceProblem("AccessDenied", "allow it", 1.0)),
    "authentication_problem": "no TokenReviews",
}
OPEN = Breaker(1, 1.0, "ImagePullFailed", "pod w1: no such image")


def faults_with(breaker: Breaker = OPEN, **more: Any) -> list[NotReadyReason]:
    observation = observed(pending(unschedulable="no node fits"), **more)
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
    assert [fault.topic for fault in faults_with(Breaker())] == ["hindrance"]


def test_only_a_changed_refusal_changes_its_fault_key() -> None:
    before = {fault.topic: fault.key for fault in faults_with(**EVERYTHING)}
    changed = EVERYTHING | {"refusal": "not your role", "authentication_problem": "no TokenReviews: 503"}
    after = {fault.topic: fault.key for fault in faults_with(replace(OPEN, message="pod w2: no such image"), **changed)}

    assert {topic for topic in before if before[topic] != after[topic]} == {"refusal"}
