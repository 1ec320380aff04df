"""Which pool a pod belongs to: found by its chain of owners, each read in the pod's namespace."""

from typing import Any

import pytest

from activity_operator.cluster.kube import ApiError
from activity_operator.cluster.ownership import Ownership
from activity_operator.cluster.resources import DEPLOYMENTS, PODS, POOLS, Resource
from activity_operator.cluster.store import Store
from activity_worker.contract import LABEL_POOL

Raw = dict[str, Any]


class Cluster:
    """A store, and the API server's ReplicaSets by namespace and name."""

    def __init__(self) -> None:
        self.store = Store(lambda _key: None)
        self.sets: dict[tuple[str, str], Raw] = {}
        self.reads = 0
        self.members = Ownership(self.store, self)  # type: ignore[arg-type]

    async def get(self, _kind: Resource, namespace: str, name: str) -> Raw:
        self.reads += 1
        if (namespace, name) not in self.sets:
            raise ApiError(404, "NotFound", "there is none")
        return self.sets[namespace, name]

    def pool(self, namespace: str) -> None:
        self.store.put(POOLS, _raw(namespace, "resize", f"pool-{namespace}"))
        owned = _raw(namespace, "resize-1", f"deployment-{namespace}", f"pool-{namespace}")
        self.store.put(DEPLOYMENTS, owned)
        self.sets[namespace, "resize-1-a"] = _raw(
            namespace, "resize-1-a", f"set-{namespace}", f"deployment-{namespace}"
        )

    def pod(self, namespace: str, uid: str, owner: str, owner_name: str = "resize-1-a") -> None:
        self.store.put(PODS, _raw(namespace, uid, uid, owner, owner_name))

    async def workers(self, namespace: str) -> list[str]:
        found = await self.members.pods((namespace, "resize"), f"pool-{namespace}")
        return [raw["metadata"]["uid"] for raw in found]


def _raw(namespace: str, name: str, uid: str, owner: str = "", owner_name: str = "any") -> Raw:
    meta: Raw = {"namespace": namespace, "name": name, "uid": uid, "labels": {LABEL_POOL: "resize"}}
    if owner:
        meta["ownerReferences"] = [{"kind": "any", "name": owner_name, "uid": owner, "controller": True}]
    return {"metadata": meta, "spec": {}, "status": {}}


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.pool("shop")
    made.pool("thief")
    return made


async def test_pod_belongs_to_the_pool_that_owns_its_deployment(cluster: Cluster) -> None:
    cluster.pod("shop", "a", "set-shop")
    cluster.pod("shop", "b", "set-shop")
    cluster.pod("shop", "labelled", "")

    assert await cluster.workers("shop") == ["a", "b"]
    assert cluster.members.pool_of("a") == ("shop", "resize")
    assert cluster.members.pool_of("labelled") is None
    assert cluster.reads == 1


async def test_pod_with_an_owner_in_another_namespace_has_no_pool(cluster: Cluster) -> None:
    cluster.pod("shop", "a", "set-shop")
    cluster.pod("thief", "b", "set-shop")

    assert await cluster.workers("shop") == ["a"]
    assert await cluster.workers("thief") == []
    assert cluster.members.pool_of("b") is None


@pytest.mark.parametrize("name", ["resize-1-a", "no-such"])
async def test_pod_with_a_forged_owner_does_not_affect_the_owners_real_pods(cluster: Cluster, name: str) -> None:
    cluster.pod("thief", "b", "set-shop", name)
    cluster.pod("shop", "0-first", "set-shop", "no-such")
    assert await cluster.workers("thief") == []
    cluster.pod("shop", "a", "set-shop")

    assert await cluster.workers("shop") == ["a"]
    assert cluster.members.pool_of("a") == ("shop", "resize")


async def test_owner_name_that_resolves_to_a_list_is_ignored(cluster: Cluster) -> None:
    cluster.sets["shop", "."] = {"kind": "ReplicaSetList", "metadata": {"resourceVersion": "7"}, "items": []}
    cluster.pod("shop", "b", "set-shop", ".")

    assert await cluster.workers("shop") == []


async def test_owner_without_pods_is_read_again_for_the_next_pod(cluster: Cluster) -> None:
    cluster.pod("shop", "a", "set-shop")
    await cluster.workers("shop")
    cluster.store.remove(PODS, _raw("shop", "a", "a", "set-shop", "resize-1-a"))
    cluster.members.prune()
    cluster.pod("shop", "b", "set-shop")

    assert await cluster.workers("shop") == ["b"]
    assert cluster.reads == 2


async def test_unchanged_pods_are_the_same_tuple(cluster: Cluster) -> None:
    cluster.pod("shop", "a", "set-shop")
    key, uid = ("shop", "resize"), "pool-shop"
    first = await cluster.members.pods(key, uid)
    assert await cluster.members.pods(key, uid) is first

    cluster.pod("shop", "b", "set-shop")
    second = await cluster.members.pods(key, uid)
    assert [raw["metadata"]["uid"] for raw in second] == ["a", "b"]
    assert second[0] is first[0]


async def test_pods_of_a_vanished_deployment_are_the_pools_no_more(cluster: Cluster) -> None:
    cluster.pod("shop", "a", "set-shop")
    assert await cluster.workers("shop") == ["a"]
    cluster.store.remove(DEPLOYMENTS, _raw("shop", "resize-1", "deployment-shop", "pool-shop"))

    assert await cluster.workers("shop") == []


async def test_pod_that_appears_while_an_owner_is_read_is_found(cluster: Cluster) -> None:
    cluster.pod("shop", "a", "set-shop")
    read = cluster.get

    async def get(_kind: Resource, namespace: str, name: str) -> Raw:
        cluster.pod("shop", "b", "set-shop")
        return await read(_kind, namespace, name)

    cluster.get = get  # type: ignore[method-assign]

    assert await cluster.workers("shop") == ["a", "b"]
    assert await cluster.workers("shop") == ["a", "b"]
