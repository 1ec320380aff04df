"""The store: whatever the order of watch, LIST and our own writes, it never goes back and keeps no phantom."""

from typing import Any

from activity_operator.cluster.kinds import DEPLOYMENTS, PODS, POOLS, Key
from activity_operator.cluster.store import Store
from activity_worker.contract import LABEL_POOL

KEY = ("ns", "p")


def thing(uid: str, version: int, name: str = "x", pool: str | None = "p", **more: Any) -> dict[str, Any]:
    labels = {LABEL_POOL: pool} if pool else {}
    meta = {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": str(version), "labels": labels}
    return {"metadata": meta, **more}


def store() -> tuple[Store, list[Key]]:
    changed: list[Key] = []
    return Store(changed.append), changed


def version(found: Any) -> str | None:
    return None if found is None else found["metadata"]["resourceVersion"]


def test_a_pool_is_found_by_its_key_and_its_parts_by_label() -> None:
    it, changed = store()
    it.put(POOLS, thing("u1", 1, name="p", pool=None))
    it.put(DEPLOYMENTS, thing("d1", 2, name="p-1"))
    it.put(PODS, thing("w1", 3, name="p-1-a"))

    assert version(it.pool(KEY)) == "1"
    assert [raw["metadata"]["name"] for raw in it.of_pool(DEPLOYMENTS, KEY)] == ["p-1"]
    assert [raw["metadata"]["uid"] for raw in it.of_pool(PODS, KEY)] == ["w1"]
    assert changed == [KEY, KEY, KEY]


def test_a_watch_event_older_than_our_own_write_is_ignored() -> None:
    it, changed = store()
    it.put(DEPLOYMENTS, thing("d1", 10, spec={"replicas": 5}))
    changed.clear()

    assert not it.put(DEPLOYMENTS, thing("d1", 9, spec={"replicas": 1}))
    assert it.of_pool(DEPLOYMENTS, KEY)[0]["spec"]["replicas"] == 5
    assert changed == []


def test_versions_are_compared_as_numbers() -> None:
    it, _ = store()
    it.put(DEPLOYMENTS, thing("d1", 999))
    it.put(DEPLOYMENTS, thing("d1", 1000))

    assert version(it.by_uid(DEPLOYMENTS, "d1")) == "1000"


def test_the_same_version_again_changes_nothing() -> None:
    it, changed = store()
    it.put(PODS, thing("w1", 5))
    it.put(PODS, thing("w1", 5))

    assert changed == [KEY]


def test_a_removed_object_is_not_brought_back_by_a_list_that_began_before() -> None:
    it, _ = store()
    it.put(PODS, thing("w1", 5))
    it.remove(PODS, thing("w1", 8))
    it.sweep(PODS, [thing("w1", 7)], {}, "7")

    assert it.of_pool(PODS, KEY) == []


def test_an_object_that_left_the_selection_comes_back_when_its_label_does() -> None:
    it, _ = store()
    it.put(DEPLOYMENTS, thing("d1", 5))
    it.remove(DEPLOYMENTS, thing("d1", 6, pool=None))
    it.put(DEPLOYMENTS, thing("d1", 7))

    assert version(it.by_uid(DEPLOYMENTS, "d1")) == "7"


def test_an_object_whose_label_went_is_no_longer_the_pools() -> None:
    it, changed = store()
    it.put(PODS, thing("w1", 5))
    changed.clear()
    it.put(PODS, thing("w1", 6, pool=None))

    assert it.of_pool(PODS, KEY) == []
    assert changed == [KEY]


def test_an_object_that_moves_to_another_pool_changes_both() -> None:
    it, changed = store()
    it.put(PODS, thing("w1", 5))
    changed.clear()
    it.put(PODS, thing("w1", 6, pool="q"))

    assert it.of_pool(PODS, KEY) == []
    assert len(it.of_pool(PODS, ("ns", "q"))) == 1
    assert changed == [KEY, ("ns", "q")]


def test_a_pool_made_anew_under_the_same_name_replaces_the_old_one() -> None:
    it, _ = store()
    it.put(POOLS, thing("old", 5, name="p", pool=None))
    it.put(POOLS, thing("new", 9, name="p", pool=None))
    it.remove(POOLS, thing("old", 8, name="p", pool=None))

    found = it.pool(KEY)
    assert found is not None
    assert found["metadata"]["uid"] == "new"


def test_an_old_tale_of_a_pool_does_not_displace_the_one_made_anew() -> None:
    it, _ = store()
    it.put(POOLS, thing("new", 9, name="p", pool=None))
    it.put(POOLS, thing("old", 5, name="p", pool=None))

    found = it.pool(KEY)
    assert found is not None
    assert found["metadata"]["uid"] == "new"


def test_a_sweep_prunes_what_vanished_unseen_and_says_so() -> None:
    it, changed = store()
    it.put(PODS, thing("w1", 5, name="a"))
    it.put(PODS, thing("w2", 6, name="b"))
    before = it.snapshot(PODS)
    changed.clear()

    assert it.sweep(PODS, [thing("w2", 6, name="b")], before, "9") == 1
    assert [raw["metadata"]["uid"] for raw in it.of_pool(PODS, KEY)] == ["w2"]
    assert changed == [KEY]


def test_a_sweep_leaves_alone_what_came_while_it_was_under_way() -> None:
    it, _ = store()
    before = it.snapshot(PODS)
    it.put(PODS, thing("w1", 12))
    it.sweep(PODS, [], before, "9")

    assert len(it.of_pool(PODS, KEY)) == 1


def test_pods_are_kept_without_what_nothing_reads() -> None:
    it, _ = store()
    pod = thing("w1", 5, spec={"nodeName": "n", "containers": [{"env": [{"name": "S", "value": "secret"}]}]})
    pod["metadata"]["managedFields"] = [{}]
    it.put(PODS, pod)

    assert it.of_pool(PODS, KEY)[0]["spec"] == {"nodeName": "n"}
    assert "managedFields" not in it.of_pool(PODS, KEY)[0]["metadata"]


def test_leftovers_of_a_vanished_pool_are_still_looked_at() -> None:
    it, _ = store()
    it.put(DEPLOYMENTS, thing("d1", 5))

    assert it.known_keys() == {KEY}
