"""Whose pod a pod is: by owners, each asked for where the pod is."""

from typing import Any

import pytest

from activity_operator.cluster.kinds import DEPLOYMENTS, PODS, POOLS, Kind
from activity_operator.cluster.kube import ApiError
from activity_operator.cluster.members import Members
from activity_operator.cluster.store import Store
from activity_worker.contract import LABEL_POOL

Raw = dict[str, Any]


class Cluster:
    """A store, and the ReplicaSets that the API server has, by namespace and name."""

    def __init__(self) -> None:
        self.store = Store(lambda _key: None)
        self.sets: dict[tuple[str, str], Raw] = {}
        self.asked = 0
        self.members = Members(self.store, self)  # type: ignore[arg-type]

    async def get(self, _kind: Kind, namespace: str, name: str) -> Raw:
        self.asked += 1
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


async def test_a_pod_belongs_to_the_pool_that_owns_its_deployment(cluster: Cluster) -> None:
    cluster.pod("shop", "a", "set-shop")
    cluster.pod("shop", "b", "set-shop")
    cluster.pod("shop", "labelled", "")

    assert await cluster.workers("shop") == ["a", "b"]
    assert cluster.members.member("a") == ("shop", "resize")
    assert cluster.members.member("labelled") is None
    assert cluster.asked == 1


async def test_a_pod_that_names_the_owner_of_another_namespace_is_nobodys(cluster: Cluster) -> None:
    cluster.pod("shop", "a", "set-shop")
    cluster.pod("thief", "b", "set-shop")

    assert await cluster.workers("shop") == ["a"]
    assert await cluster.workers("thief") == []
    assert cluster.members.member("b") is None


@pytest.mark.parametrize("name", ["resize-1-a", "no-such"])
async def test_who_lies_about_an_owner_first_says_nothing_about_the_pods_that_have_it(
    cluster: Cluster, name: str
) -> None:
    cluster.pod("thief", "b", "set-shop", name)
    cluster.pod("shop", "0-first", "set-shop", "no-such")
    assert await cluster.workers("thief") == []
    cluster.pod("shop", "a", "set-shop")

    assert await cluster.workers("shop") == ["a"]
    assert cluster.members.member("a") == ("shop", "resize")


async def test_an_owners_name_that_leads_to_a_list_is_no_error(cluster: Cluster) -> None:
    cluster.sets["shop", "."] = {"kind": "ReplicaSetList", "metadata": {"resourceVersion": "7"}, "items": []}
    cluster.pod("shop", "b", "set-shop", ".")

    assert await cluster.workers("shop") == []


async def test_owners_of_whom_no_pod_is_left_are_asked_for_again(cluster: Cluster) -> None:
    cluster.pod("shop", "a", "set-shop")
    await cluster.workers("shop")
    cluster.store.remove(PODS, _raw("shop", "a", "a", "set-shop", "resize-1-a"))
    cluster.members.prune()
    cluster.pod("shop", "b", "set-shop")

    assert await cluster.workers("shop") == ["b"]
    assert cluster.asked == 2
