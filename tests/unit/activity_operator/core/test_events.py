"""Which changes cause a Kubernetes Event."""

from typing import Any

from activity_operator.core.decision import Breaker, Limit, Size
from activity_operator.core.events import new_events
from activity_operator.core.situation import situation_of
from tests.unit.activity_operator.core.builders import NOW, busy, observed, pool


def event_reasons(**more: Any) -> list[str]:
    observation = observed(busy(), **more)
    events, _ = new_events(situation_of(pool(), observation), Size(1, Limit.DEMAND, "1 running"), Breaker(), {})
    return [event.reason for event in events]


def test_missing_reports_cause_an_event_only_in_a_settled_term() -> None:
    assert event_reasons(
        report_path_problem="more than half of the workers fell silent together", leader_since=NOW - 31
    ) == ["ReportsMissing"]
    assert event_reasons(report_path_problem="this replica has led for less than 5 s", leader_since=NOW - 4) == []
