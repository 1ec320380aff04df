"""Every fault there is, and which of them a person should look at first."""

from dataclasses import replace
from typing import Any

from activity_operator.core.decision import Breaker
from activity_operator.core.faults import Fault, faults
from activity_operator.core.observation import SourceError, SourceFacts
from tests.unit.activity_operator.core.builders import coming, crew, pool, seen

EVERYTHING: dict[str, Any] = {
    "refusal": "not your ARN",
    "rejected": "no such field",
    "rejected_reason": "PodTemplateRejected",
    "source": SourceFacts(error=SourceError("AccessDenied", "allow it", 1.0)),
    "unauthenticated": "no TokenReviews",
}
OPEN = Breaker(1, 1.0, "ImagePullFailed", "pod w1: no such image")


def found(breaker: Breaker = OPEN, **more: Any) -> list[Fault]:
    situation = seen(coming(unschedulable="no node fits"), **more)
    return list(faults(pool(), situation, crew(situation), breaker))


def test_what_forbids_all_work_comes_first_and_what_waits_for_the_cluster_last() -> None:
    assert [(fault.reason, fault.message) for fault in found(**EVERYTHING)] == [
        ("TenancyDenied", "not your ARN"),
        ("PodTemplateRejected", "no such field"),
        ("AccessDenied", "allow it"),
        ("ReportsUnauthenticated", "no TokenReviews"),
        ("ImagePullFailed", "pod w1: no such image"),
        ("WorkersUnschedulable", "pod n1: no node fits"),
    ]
    assert [fault.topic for fault in found(Breaker())] == ["hindrance"]


def test_only_words_from_outside_are_news_when_they_change() -> None:
    before = {fault.topic: fault.key for fault in found(**EVERYTHING)}
    changed = EVERYTHING | {"refusal": "not your role", "unauthenticated": "no TokenReviews: 503"}
    after = {fault.topic: fault.key for fault in found(replace(OPEN, message="pod w2: no such image"), **changed)}

    assert {topic for topic in before if before[topic] != after[topic]} == {"refusal"}
