"""A watch that owes a change for longer than the grace, as two LISTs show, is dead; a quiet one is not."""

from typing import Any

from activity_operator.cluster.freshness import Freshness
from activity_operator.cluster.kinds import DEPLOYMENTS, PODS


def thing(uid: str, version: int) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "name": f"name-{uid}", "resourceVersion": str(version)}}


class Scene:
    """Watches with a grace of 100 s on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.it = Freshness(100.0, lambda: self.now)


def test_a_write_that_comes_back_owes_nothing() -> None:
    scene = Scene()
    scene.it.wrote(DEPLOYMENTS, thing("a", 5))
    scene.it.told(DEPLOYMENTS, thing("a", 5), gone=False)

    assert scene.it.next_check is None
    scene.now = 1000
    scene.it.listed(DEPLOYMENTS, [thing("a", 5)])
    assert scene.it.verdict == ""


def test_a_write_that_never_comes_back_is_a_dead_watch() -> None:
    scene = Scene()
    scene.it.wrote(DEPLOYMENTS, thing("a", 5))
    scene.now = 101
    assert scene.it.verdict == "", "only a LIST can tell a dead watch from an object that is gone"
    scene.it.listed(DEPLOYMENTS, [thing("a", 5)])

    assert "deployments" in scene.it.verdict
    assert "name-a" in scene.it.verdict


def test_a_change_of_others_that_only_the_list_shows_is_a_dead_watch_too() -> None:
    scene = Scene()
    scene.it.told(PODS, thing("a", 5), gone=False)
    scene.it.listed(PODS, [thing("a", 9)])
    assert scene.it.verdict == ""
    scene.now = 100
    scene.it.listed(PODS, [thing("a", 9)])

    assert scene.it.verdict


def test_a_busy_object_does_not_put_off_the_discovery() -> None:
    scene = Scene()
    for step in range(11):
        scene.now = step * 10.0
        scene.it.wrote(DEPLOYMENTS, thing("a", 10 + step))
    scene.it.listed(DEPLOYMENTS, [thing("a", 30)])

    assert scene.it.verdict


def test_an_object_deleted_unseen_is_no_proof() -> None:
    scene = Scene()
    scene.it.wrote(PODS, thing("a", 5))
    scene.now = 500
    scene.it.listed(PODS, [])

    assert scene.it.verdict == ""
    assert scene.it.next_check is None


def test_a_watch_that_catches_up_is_alive_again() -> None:
    scene = Scene()
    scene.it.wrote(PODS, thing("a", 5))
    scene.now = 200
    scene.it.listed(PODS, [thing("a", 5)])
    scene.it.told(PODS, thing("a", 6), gone=False)

    assert scene.it.verdict == ""


def test_an_event_older_than_the_write_pays_nothing() -> None:
    scene = Scene()
    scene.it.wrote(PODS, thing("a", 5))
    scene.it.told(PODS, thing("a", 4), gone=False)

    assert scene.it.next_check == 100.0


def test_the_end_of_an_object_pays_what_is_owed_for_it() -> None:
    scene = Scene()
    scene.it.wrote(PODS, thing("a", 5))
    scene.it.told(PODS, thing("a", 6), gone=True)

    assert scene.it.next_check is None


def test_a_quiet_watch_is_never_suspected() -> None:
    scene = Scene()
    scene.it.told(PODS, thing("a", 5), gone=False)
    for minute in range(60):
        scene.now = minute * 60.0
        scene.it.listed(PODS, [thing("a", 5)])

        assert scene.it.verdict == ""
