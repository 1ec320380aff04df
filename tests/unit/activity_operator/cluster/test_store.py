"""The store: no order of watch events, LISTs and own writes makes cached go back or keep a deleted object."""

from typing import Any

from activity_operator.cluster.resources import DEPLOYMENTS, PODS, POOLS, Key
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


def test_pool_is_found_by_key_and_its_objects_by_label() -> None:
    cached, changed = store()
    cached.put(POOLS, thing("u1", 1, name="p", pool=None))
    cached.put(DEPLOYMENTS, thing("d1", 2, name="p-1"))
    cached.put(PODS, thing("w1", 3, name="p-1-a"))

    assert version(cached.pool(KEY)) == "1"
    assert [raw["metadata"]["name"] for raw in cached.of_pool(DEPLOYMENTS, KEY)] == ["p-1"]
    assert [raw["metadata"]["uid"] for raw in cached.of_pool(PODS, KEY)] == ["w1"]
    assert changed == [KEY, KEY, KEY]


def test_watch_event_older_than_an_own_write_is_ignored() -> None:
    cached, changed = store()
    cached.put(DEPLOYMENTS, thing("d1", 10, spec={"replicas": 5}))
    changed.clear()

    assert not cached.put(DEPLOYMENTS, thing("d1", 9, spec={"replicas": 1}))
    assert cached.of_pool(DEPLOYMENTS, KEY)[0]["spec"]["replicas"] == 5
    assert changed == []


def test_versions_are_compared_as_numbers() -> None:
    cached, _ = store()
    cached.put(DEPLOYMENTS, thing("d1", 999))
    cached.put(DEPLOYMENTS, thing("d1", 1000))

    assert version(cached.by_uid(DEPLOYMENTS, "d1")) == "1000"


def test_same_version_again_changes_nothing() -> None:
    cached, changed = store()
    cached.put(PODS, thing("w1", 5))
    cached.put(PODS, thing("w1", 5))

    assert changed == [KEY]


def test_removed_object_is_not_restored_by_an_older_list() -> None:
    cached, _ = store()
    cached.put(PODS, thing("w1", 5))
    before = cached.snapshot(PODS)
    cached.remove(PODS, thing("w1", 8))
    cached.replace(PODS, [thing("w1", 7)], before, "7")

    assert cached.of_pool(PODS, KEY) == []


def test_object_returns_when_its_label_returns() -> None:
    cached, _ = store()
    cached.put(DEPLOYMENTS, thing("d1", 5))
    cached.remove(DEPLOYMENTS, thing("d1", 6, pool=None))
    cached.put(DEPLOYMENTS, thing("d1", 7))

    assert version(cached.by_uid(DEPLOYMENTS, "d1")) == "7"


def test_object_without_its_label_leaves_the_pool() -> None:
    cached, changed = store()
    cached.put(PODS, thing("w1", 5))
    changed.clear()
    cached.put(PODS, thing("w1", 6, pool=None))

    assert cached.of_pool(PODS, KEY) == []
    assert changed == [KEY]


def test_object_that_moves_to_another_pool_changes_both() -> None:
    cached, changed = store()
    cached.put(PODS, thing("w1", 5))
    changed.clear()
    cached.put(PODS, thing("w1", 6, pool="q"))

    assert cached.of_pool(PODS, KEY) == []
    assert len(cached.of_pool(PODS, ("ns", "q"))) == 1
    assert changed == [KEY, ("ns", "q")]


def test_recreated_pool_replaces_the_old_one() -> None:
    cached, _ = store()
    cached.put(POOLS, thing("old", 5, name="p", pool=None))
    cached.put(POOLS, thing("new", 9, name="p", pool=None))
    cached.remove(POOLS, thing("old", 8, name="p", pool=None))

    found = cached.pool(KEY)
    assert found is not None
    assert found["metadata"]["uid"] == "new"


def test_late_event_of_an_old_pool_does_not_replace_the_recreated_one() -> None:
    cached, _ = store()
    cached.put(POOLS, thing("new", 9, name="p", pool=None))
    cached.put(POOLS, thing("old", 5, name="p", pool=None))

    found = cached.pool(KEY)
    assert found is not None
    assert found["metadata"]["uid"] == "new"


def test_sweep_removes_vanished_objects_and_notifies() -> None:
    cached, changed = store()
    cached.put(PODS, thing("w1", 5, name="a"))
    cached.put(PODS, thing("w2", 6, name="b"))
    before = cached.snapshot(PODS)
    changed.clear()

    assert cached.replace(PODS, [thing("w2", 6, name="b")], before, "9") == 1
    assert [raw["metadata"]["uid"] for raw in cached.of_pool(PODS, KEY)] == ["w2"]
    assert changed == [KEY]


def test_sweep_keeps_objects_added_during_the_list() -> None:
    cached, _ = store()
    before = cached.snapshot(PODS)
    cached.put(PODS, thing("w1", 12))
    cached.replace(PODS, [], before, "9")

    assert len(cached.of_pool(PODS, KEY)) == 1


def test_list_after_a_restore_of_the_storage_is_believed() -> None:
    """etcd was restored to version 20: one pod is as it was then, one was deleted since, and one exists again."""
    cached, changed = store()
    cached.put(PODS, thing("changed", 50, name="a", status={"phase": "Running"}))
    cached.put(PODS, thing("new", 40, name="b"))
    cached.put(PODS, thing("deleted", 11, name="c"))
    cached.remove(PODS, thing("deleted", 45, name="c"))
    before = cached.snapshot(PODS)
    changed.clear()
    restored = [thing("changed", 12, name="a", status={"phase": "Pending"}), thing("deleted", 11, name="c")]

    assert cached.replace(PODS, restored, before, "20") == 1
    pods = cached.of_pool(PODS, KEY)
    assert [(raw["metadata"]["uid"], raw["metadata"]["resourceVersion"]) for raw in pods] == [
        ("changed", "12"),
        ("deleted", "11"),
    ]
    assert pods[0]["status"] == {"phase": "Pending"}
    assert changed


def test_events_after_a_restore_of_the_storage_are_stored() -> None:
    cached, _ = store()
    cached.put(PODS, thing("w1", 50))
    cached.replace(PODS, [thing("w1", 12)], cached.snapshot(PODS), "20")

    assert cached.put(PODS, thing("w1", 21))
    assert not cached.put(PODS, thing("w1", 12))
    assert not cached.snapshot(PODS).is_after("21")


def test_deletion_alone_shows_that_the_storage_was_restored() -> None:
    cached, _ = store()
    cached.put(PODS, thing("w1", 10))
    cached.remove(PODS, thing("w1", 45))
    cached.replace(PODS, [thing("w1", 10)], cached.snapshot(PODS), "20")

    assert len(cached.of_pool(PODS, KEY)) == 1


def test_late_list_is_no_restore_of_the_storage() -> None:
    """The watch delivers newer versions while a LIST is under way."""
    cached, _ = store()
    cached.put(PODS, thing("w1", 10))
    before = cached.snapshot(PODS)
    cached.put(PODS, thing("w1", 30))
    cached.replace(PODS, [thing("w1", 10)], before, "20")

    assert cached.of_pool(PODS, KEY)[0]["metadata"]["resourceVersion"] == "30"


def test_stored_pods_have_only_the_fields_in_use() -> None:
    cached, _ = store()
    pod = thing("w1", 5, spec={"nodeName": "n", "containers": [{"env": [{"name": "S", "value": "secret"}]}]})
    pod["metadata"]["managedFields"] = [{}]
    cached.put(PODS, pod)

    assert cached.of_pool(PODS, KEY)[0]["spec"] == {"nodeName": "n"}
    assert "managedFields" not in cached.of_pool(PODS, KEY)[0]["metadata"]


def test_objects_of_a_vanished_pool_keep_its_key_known() -> None:
    cached, _ = store()
    cached.put(DEPLOYMENTS, thing("d1", 5))

    assert cached.known_keys() == {KEY}
