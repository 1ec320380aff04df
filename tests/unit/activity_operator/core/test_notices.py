"""What is worth an Event, and what is not."""

from typing import Any

from activity_operator.core.decision import Breaker, Size
from activity_operator.core.notices import notices
from tests.unit.activity_operator.core.builders import NOW, busy, crew, pool, seen


def said_of(**more: Any) -> list[str]:
    situation = seen(busy(), **more)
    events, _ = notices(pool(), situation, crew(situation), Size(1, "demand", "1 running"), Breaker(), {})
    return [event.reason for event in events]


def test_silence_is_news_only_when_the_leader_is_not_new() -> None:
    assert said_of(suspect="more than half of the workers fell silent together", leader_since=NOW - 31) == [
        "ReportsMissing"
    ]
    assert said_of(suspect="this replica has led for less than 5 s", leader_since=NOW - 4) == []
