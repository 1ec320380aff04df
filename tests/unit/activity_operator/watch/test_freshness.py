"""A watch is dead if two LISTs show that it has owed a change for longer than the grace; a quiet one is not."""

from typing import Any

import pytest

from activity_operator.cluster.resources import DEPLOYMENTS, PODS
from activity_operator.watch.freshness import Freshness


def thing(uid: str, version: int) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "name": f"name-{uid}", "resourceVersion": str(version)}}


class TimedWatches:
    """Watches with a grace of 100 s on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.freshness = Freshness(100.0, lambda: self.now)


def test_write_that_the_watch_shows_leaves_nothing_owed() -> None:
    watches = TimedWatches()
    watches.freshness.wrote(DEPLOYMENTS, thing("a", 5))
    watches.freshness.delivered(DEPLOYMENTS, thing("a", 5), gone=False)

    assert watches.freshness.next_check is None
    watches.now = 1000
    watches.freshness.listed(DEPLOYMENTS, [thing("a", 5)], "5")
    assert watches.freshness.problem == ""


def test_write_that_the_watch_never_shows_proves_a_dead_watch() -> None:
    watches = TimedWatches()
    watches.freshness.wrote(DEPLOYMENTS, thing("a", 5))
    watches.now = 101
    assert watches.freshness.problem == "", "only a LIST can distinguish a dead watch from a deleted object"
    watches.freshness.listed(DEPLOYMENTS, [thing("a", 5)], "5")

    assert "deployments" in watches.freshness.problem
    assert "name-a" in watches.freshness.problem


def test_restored_storage_owes_no_version_from_before() -> None:
    watches = TimedWatches()
    watches.freshness.delivered(DEPLOYMENTS, thing("a", 40), gone=False)
    watches.freshness.wrote(DEPLOYMENTS, thing("a", 50))
    watches.freshness.forget(DEPLOYMENTS)
    for watches.now in (0, 101, 202):
        watches.freshness.listed(DEPLOYMENTS, [thing("a", 12)], "12")

    assert watches.freshness.problem == ""


def test_foreign_change_that_only_a_list_shows_proves_a_dead_watch() -> None:
    watches = TimedWatches()
    watches.freshness.delivered(PODS, thing("a", 5), gone=False)
    watches.freshness.listed(PODS, [thing("a", 9)], "9")
    assert watches.freshness.problem == ""
    watches.now = 100
    watches.freshness.listed(PODS, [thing("a", 9)], "9")

    assert watches.freshness.problem


def test_frequent_writes_do_not_delay_the_detection() -> None:
    watches = TimedWatches()
    for step in range(11):
        watches.now = step * 10.0
        watches.freshness.wrote(DEPLOYMENTS, thing("a", 10 + step))
    watches.freshness.listed(DEPLOYMENTS, [thing("a", 30)], "30")

    assert watches.freshness.problem


def test_object_deleted_without_event_is_no_proof() -> None:
    watches = TimedWatches()
    watches.freshness.wrote(PODS, thing("a", 5))
    watches.now = 500
    watches.freshness.listed(PODS, [], "9")

    assert watches.freshness.problem == ""
    assert watches.freshness.next_check is None


def test_object_delivered_while_a_list_was_under_way_is_not_owed_again() -> None:
    watches = TimedWatches()
    watches.freshness.wrote(DEPLOYMENTS, thing("new", 12))
    watches.freshness.delivered(DEPLOYMENTS, thing("new", 12), gone=False)
    watches.freshness.listed(DEPLOYMENTS, [thing("old", 5)], "11")
    watches.freshness.delivered(DEPLOYMENTS, thing("old", 5), gone=False)
    watches.now = 60
    watches.freshness.listed(DEPLOYMENTS, [thing("old", 5), thing("new", 12)], "12")

    assert watches.freshness.next_check is None


def test_write_while_a_list_was_under_way_stays_owed() -> None:
    watches = TimedWatches()
    watches.freshness.wrote(DEPLOYMENTS, thing("new", 12))
    watches.freshness.listed(DEPLOYMENTS, [], "11")
    watches.now = 101
    watches.freshness.listed(DEPLOYMENTS, [thing("new", 12)], "12")

    assert "name-new" in watches.freshness.problem


def test_watch_that_catches_up_is_alive() -> None:
    watches = TimedWatches()
    watches.freshness.wrote(PODS, thing("a", 5))
    watches.now = 200
    watches.freshness.listed(PODS, [thing("a", 5)], "5")
    watches.freshness.delivered(PODS, thing("a", 6), gone=False)

    assert watches.freshness.problem == ""


def test_event_older_than_the_write_leaves_it_owed() -> None:
    watches = TimedWatches()
    watches.freshness.wrote(PODS, thing("a", 5))
    watches.freshness.delivered(PODS, thing("a", 4), gone=False)

    assert watches.freshness.next_check == 100.0


def test_deletion_event_settles_what_is_owed() -> None:
    watches = TimedWatches()
    watches.freshness.wrote(PODS, thing("a", 5))
    watches.freshness.delivered(PODS, thing("a", 6), gone=True)

    assert watches.freshness.next_check is None


def test_quiet_watch_stays_alive() -> None:
    watches = TimedWatches()
    watches.freshness.delivered(PODS, thing("a", 5), gone=False)
    for minute in range(60):
        watches.now = minute * 60.0
        watches.freshness.listed(PODS, [thing("a", 5)], "5")

        assert watches.freshness.problem == ""


def test_watch_that_goes_on_after_a_lost_event_is_not_dead(caplog: pytest.LogCaptureFixture) -> None:
    watches = TimedWatches()
    watches.freshness.wrote(DEPLOYMENTS, thing("a", 5))
    watches.freshness.delivered(DEPLOYMENTS, thing("b", 6), gone=False)
    watches.now = 101
    watches.freshness.listed(DEPLOYMENTS, [thing("a", 5), thing("b", 6)], "6")

    assert (watches.freshness.problem, watches.freshness.next_check) == ("", None)
    assert "the watch of deployments has lost 1 events, such as one of name-a" in caplog.text


def test_watch_that_has_delivered_only_older_versions_is_dead() -> None:
    watches = TimedWatches()
    watches.freshness.delivered(DEPLOYMENTS, thing("b", 4), gone=False)
    watches.freshness.wrote(DEPLOYMENTS, thing("a", 5))
    watches.now = 101
    watches.freshness.listed(DEPLOYMENTS, [thing("a", 5), thing("b", 4)], "5")

    assert "name-a" in watches.freshness.problem
