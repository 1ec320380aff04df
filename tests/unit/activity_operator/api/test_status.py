"""The status: small, complete in JSON, and with texts short enough for the API server."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from activity_operator.api.conditions import Condition, ConditionType, Reason, merge
from activity_operator.api.model import ApiModel
from activity_operator.api.status import DecisionRecord, EventRecord, ExitRecord, PoolStatus, parse_status

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_status_survives_the_round_trip_through_the_api_server() -> None:
    status = PoolStatus(
        observed_generation=3,
        conditions=merge((), [Condition(ConditionType.READY, "True", Reason.POOL_READY, "fine", 3)], NOON),
        replicas=2,
        backlog=7,
        last_scale_time=NOON,
        decisions=(DecisionRecord(at=NOON, desired=2, victims=("resize-0",)),),
        events=(EventRecord(at=NOON, name="worker:stopped", exit=ExitRecord(code=10, error="PollingError")),),
    )

    assert parse_status(status.as_dict()) == status


def test_missing_status_has_observed_generation_minus_1() -> None:
    assert parse_status(None).observed_generation == -1


def test_unknown_backlog_is_left_out_and_is_not_zero() -> None:
    assert "backlog" not in PoolStatus(backlog=None).as_dict()
    assert PoolStatus(backlog=0).as_dict()["backlog"] == 0


def test_only_the_latest_decisions_and_events_are_kept() -> None:
    times = [NOON + timedelta(seconds=second) for second in range(30)]
    status = PoolStatus(
        decisions=tuple(DecisionRecord(at=at, desired=1) for at in times),
        events=tuple(EventRecord(at=at, name="stalled") for at in times),
    )

    assert [record.at for record in status.decisions] == times[-10:]
    assert [record.at for record in status.events] == times[-20:]


def test_long_texts_are_shortened() -> None:
    event = EventRecord(at=NOON, name="n" * 900, message="m" * 900)

    assert (len(event.name), len(event.message)) == (64, 256)


def test_times_are_written_in_whole_seconds_of_utc() -> None:
    at = NOON.replace(microsecond=123456).astimezone()

    assert PoolStatus(last_scale_time=at).as_dict()["lastScaleTime"] == "2026-01-01T12:00:00Z"


def test_time_without_a_zone_is_not_written() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        PoolStatus(last_scale_time=NOON.replace(tzinfo=None)).as_dict()


def test_unknown_conditions_are_skipped() -> None:
    assert parse_status({"conditions": [{"type": "Unheard", "status": "True"}]}).conditions == ()


@pytest.mark.parametrize(
    "raw",
    [
        {"lastScaleTime": "0001-01-01T00:00:00+14:00"},
        {"lastScaleTime": "9999-12-31T23:59:59-14:00"},
        {"decisions": [{"at": "0000-01-01T00:00:00Z", "desired": 1}]},
        {"decisions": "none"},
    ],
)
def test_unreadable_status_is_replaced_by_an_empty_one(raw: dict[str, Any]) -> None:
    assert parse_status({"provenRevision": "r", **raw}) == PoolStatus()


@pytest.mark.parametrize("time", ["2026-01-01t00:00:00z", "0001-01-01T00:00:00Z", "2026-01-01T00:00:00.123456789Z"])
def test_every_time_that_the_api_server_accepts_can_be_written_back(time: str) -> None:
    condition = {"type": "Ready", "status": "True", "reason": "PoolReady", "message": "", "lastTransitionTime": time}

    again = parse_status({"lastScaleTime": time, "conditions": [condition]}).as_dict()

    assert again["lastScaleTime"] == again["conditions"][0]["lastTransitionTime"] == time[:19].upper() + "Z"


def test_control_characters_in_worker_messages_are_escaped() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    written = PoolStatus(events=(EventRecord(at=at, name="worker:error", message="a\nb\x1b[0m\ud800"),)).as_dict()

    assert written["events"][0]["message"] == r"a\nb\x1b[0m\ud800"


#: Texts that take as much room as a text can: long, and with characters that JSON or UTF-8 makes longer.
WORST_TEXTS = ("x" * 5000, '"\\' * 2500, "\x1b" * 5000, "ß\u4e2d\U0001f600" * 2000)


def worst_value(annotation: Any, text: str) -> Any:
    """Return a value of the type that takes as much room as its model allows."""
    if isinstance(annotation, type) and issubclass(annotation, ApiModel):
        return {
            info.alias or name: worst_value(info.annotation, text) for name, info in annotation.model_fields.items()
        }
    inner = [part for part in getattr(annotation, "__args__", ()) if part is not type(None) and part is not ...]
    origin = getattr(annotation, "__origin__", None)
    if origin is tuple:
        return tuple(worst_value(inner[0], text) for _ in range(200))
    if inner and origin is not Literal:
        return worst_value(inner[0], text)
    return {int: 2**31 - 1, float: 1234567.891, datetime: NOON}.get(annotation, text)


@pytest.mark.parametrize("text", WORST_TEXTS, ids=["long", "escaped", "unprintable", "wide"])
def test_whole_status_stays_below_64_kib_in_the_worst_case(text: str) -> None:
    raw = {
        name: worst_value(info.annotation, text)
        for name, info in PoolStatus.model_fields.items()
        if name not in {"conditions", "selector"}
    }
    every = [Condition(kind, "Unknown", Reason.REPORTS_UNAUTHENTICATED, text, 2**31) for kind in ConditionType]
    status = PoolStatus(**raw, conditions=merge((), every, NOON), selector="s" * 512)

    found = json.dumps(status.as_dict(), ensure_ascii=False).encode()
    assert len(status.events) == 20
    assert len(status.decisions[0].victims) == 20
    assert 40 * 1024 < len(found) < 64 * 1024
