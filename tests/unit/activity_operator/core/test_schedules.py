"""Schedules: which one applies, when that changes, and the limits that they set."""

from datetime import datetime
from typing import Any

import pytest

from activity_operator.api.spec import PoolSpec, Schedule
from activity_operator.core.decide import decide
from activity_operator.core.decision import ScalingMemory
from activity_operator.core.schedules import schedule_at
from activity_operator.core.situation import situation_of
from activity_operator.core.status import pool_status
from tests.unit.activity_operator.core.builders import busy, observed, pool, window
from tests.unit.activity_operator.core.pool_harness import START, PoolHarness, pool_spec

OFFICE = {
    "name": "office",
    "timeZone": "Europe/Berlin",
    "startCron": "0 8 * * 1-5",
    "endCron": "0 18 * * 1-5",
    "minWorkers": 3,
}


def unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def at(text: str, *schedules: dict[str, Any]) -> tuple[str, float | None]:
    """Return the name of the schedule that applies at the time, and when that changes next."""
    found = schedule_at([Schedule.model_validate(one) for one in schedules or (OFFICE,)], unix(text))
    return found.name, found.changes_at


@pytest.mark.parametrize(
    ("now", "name", "change"),
    [
        ("2026-11-23T07:59:59+01:00", "", "2026-11-23T08:00:00+01:00"),
        ("2026-11-23T08:00:00+01:00", "office", "2026-11-23T18:00:00+01:00"),
        ("2026-11-23T17:59:59+01:00", "office", "2026-11-23T18:00:00+01:00"),
        ("2026-11-23T18:00:00+01:00", "", "2026-11-24T08:00:00+01:00"),
        ("2026-11-28T12:00:00+01:00", "", "2026-11-30T08:00:00+01:00"),
    ],
)
def test_schedule_applies_from_its_first_to_its_last_moment(now: str, name: str, change: str) -> None:
    assert at(now) == (name, unix(change))


@pytest.mark.parametrize(("day", "offset"), [("2026-03-27", "+01:00"), ("2026-03-30", "+02:00")])
def test_hours_are_those_of_the_time_zone_also_after_a_clock_change(day: str, offset: str) -> None:
    assert at(f"{day}T07:59:00{offset}")[0] == ""
    assert at(f"{day}T08:00:00{offset}")[0] == "office"


def test_schedule_over_midnight_lasts_until_the_morning() -> None:
    night = {"name": "night", "startCron": "0 22 * * *", "endCron": "0 6 * * *", "maxWorkers": 1}

    assert [at(f"2026-11-23T{hour}:00+00:00", night)[0] for hour in ("21:59", "22:00", "03:00", "06:00")] == [
        "",
        "night",
        "night",
        "",
    ]


def test_schedule_by_date_applies_once() -> None:
    sale = {
        "name": "sale",
        "startTime": "2026-11-27T00:00:00Z",
        "endTime": "2026-11-28T00:00:00Z",
        "minWorkers": 5,
    }

    assert at("2026-11-26T12:00:00+00:00", sale) == ("", unix("2026-11-27T00:00:00+00:00"))
    assert at("2026-11-27T00:00:00+00:00", sale) == ("sale", unix("2026-11-28T00:00:00+00:00"))
    assert at("2026-11-28T00:00:00+00:00", sale) == ("", None)


def test_first_of_two_active_schedules_applies() -> None:
    always = {"name": "always", "startCron": "* * * * *", "endCron": "0 0 1 1 *", "minWorkers": 1}
    noon = "2026-11-23T12:00:30+01:00"

    assert at(noon, OFFICE, always)[0] == "office"
    assert at("2026-11-22T12:00:30+01:00", OFFICE)[0] == ""


def scheduled(minutes_from_now: int, minutes: int, **sizes: int) -> dict[str, Any]:
    """Return `scaling` with one schedule by date, counted from the start of a `PoolHarness`."""
    begin = START + minutes_from_now * 60

    def time(seconds: float) -> str:
        return datetime.fromtimestamp(seconds).astimezone().isoformat()

    one = {"name": "peak", "startTime": time(begin), "endTime": time(begin + minutes * 60), **sizes}
    return {"schedules": [one], **window(0, 10)}


def test_pool_has_the_schedules_least_size_in_its_time_only() -> None:
    harness = PoolHarness(pool_spec(scaling=scheduled(10, 5, minWorkers=4)))
    sizes = [harness.run(60).size for _ in range(20)]

    assert {size.desired for size in sizes[:9]} == {0}
    assert (sizes[10].desired, sizes[10].limit) == (4, "schedule")
    assert sizes[10].reason.endswith("minWorkers of schedule peak is 4")
    assert sizes[19].desired == 0
    assert harness.replicas == 0


def test_schedules_largest_size_bounds_the_work() -> None:
    spec = pool(scaling=scheduled(-10, 60, maxWorkers=2))
    seen = observed(*(busy(f"w{number}") for number in range(5)), now=START)

    size = decide(spec, seen, ScalingMemory()).size
    assert (size.desired, size.limit) == (2, "schedule")
    assert "maxWorkers of schedule peak is 2" in size.reason


def test_schedules_largest_size_below_min_workers_wins() -> None:
    applied = situation_of(pool(minWorkers=5, scaling=scheduled(-10, 60, maxWorkers=2)), observed(now=START)).spec

    assert (applied.min_workers, applied.max_workers) == (2, 2)


def test_pinned_pool_has_no_schedule() -> None:
    spec = pool(replicas=7, scaling=scheduled(-10, 60, maxWorkers=2))

    assert decide(spec, observed(now=START), ScalingMemory()).size.desired == 7


def test_status_names_the_active_schedule_and_its_next_change() -> None:
    def status(spec: PoolSpec) -> dict[str, Any]:
        seen = observed(now=START)
        return pool_status(spec, seen, decide(spec, seen, ScalingMemory()), None, ())

    assert status(pool(scaling=scheduled(-10, 20, minWorkers=1)))["schedule"] == {
        "active": "peak",
        "nextChange": "1970-01-01T02:56:40Z",
    }
    assert status(pool(scaling=scheduled(10, 20, minWorkers=1)))["schedule"]["active"] == ""
    assert "schedule" not in status(pool())


def test_status_changes_only_when_a_schedule_begins_or_ends() -> None:
    """A pool at rest in a schedule writes nothing until the schedule ends."""
    spec = pool(scaling=scheduled(-10, 600, minWorkers=0))
    seen = [observed(now=START + minutes) for minutes in (0, 60, 3600)]
    first = pool_status(spec, seen[0], decide(spec, seen[0], ScalingMemory()), None, ())

    for later in seen[1:]:
        assert pool_status(spec, later, decide(spec, later, ScalingMemory()), first, ()) == first
