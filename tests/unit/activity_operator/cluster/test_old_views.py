"""A write that was decided on an outdated view is refused, so that it cannot lower the replicas."""

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from activity_operator.cluster.apply import Applier, NotLeadingError, Work
from activity_operator.cluster.edit_conflicts import Edit
from activity_operator.cluster.kube import ApiError, KubeClient
from activity_operator.cluster.resources import DEPLOYMENTS, Key, Raw, Resource
from activity_operator.cluster.store import Store
from activity_operator.core.decision import (
    Action,
    ApplyRevision,
    DeleteDeployment,
    DeletePod,
    SetDeletionCost,
    SetReplicas,
)
from activity_operator.core.observation import DeploymentFacts
from activity_operator.watch.freshness import Freshness
from activity_worker.contract import LABEL_POOL

KEY: Key = ("ns", "p")
POOL = {"metadata": {"namespace": "ns", "name": "p", "uid": "u1"}}
OWNER = {"uid": "u1", "controller": True}
CONFLICT = ApiError(409, "Conflict", "the object has been modified")


def deployment(replicas: int, version: int) -> Raw:
    meta: Raw = {"name": "p-r1", "namespace": "ns", "uid": "d1", "resourceVersion": str(version)}
    meta |= {"labels": {LABEL_POOL: "p"}, "annotations": {}, "ownerReferences": [OWNER]}
    return {"metadata": meta, "spec": {"replicas": replicas}}


class ApiServer:
    """A fake API server with one Deployment and preconditions; another client has raised the replicas."""

    def __init__(self, cached: int, live: int) -> None:
        self.store = Store(lambda _: None)
        self.store.put(DEPLOYMENTS, deployment(cached, 1))
        self.live: Raw | None = deployment(live, 2)
        self.work = Work(KEY, POOL)
        self.leading = True

    async def do(self, action: Action) -> None:
        """Carry out an action on the outdated view."""
        applier = Applier(
            cast("Any", self),
            self.store,
            Freshness(60, lambda: 0.0),
            cast("Any", SimpleNamespace(leading=self.leading)),
            clock=lambda: 0.0,
            emit_event=lambda *_: None,
        )
        await applier.apply(self.work, (action,))

    @property
    def replicas(self) -> int | None:
        """The replicas of the live Deployment, None if it is deleted."""
        return None if self.live is None else self.live["spec"]["replicas"]

    async def get(self, *_: Any) -> Raw:
        return cast("Raw", self.live)

    async def merge_patch(self, _: Resource, __: str, ___: str, body: Raw) -> Raw:
        self._check(body["metadata"].get("resourceVersion"))
        return self._write(body["spec"]["replicas"])

    async def json_patch(self, _: Resource, __: str, ___: str, operations: list[Raw]) -> Raw:
        for one in operations:
            _, top, name = one["path"].split("/")
            if one["op"] == "test" and cast("Raw", self.live)[top][name] != one["value"]:
                raise CONFLICT
        return self._write(next(one["value"] for one in operations if one["op"] == "replace"))

    async def apply(self, _: Resource, __: str, ___: str, body: Raw) -> Raw:
        self._check(body["metadata"].get("resourceVersion"))
        return self._write(body["spec"]["replicas"])

    async def delete(self, _: Resource, __: str, ___: str, uid: str, resource_version: str = "") -> None:
        self._check(resource_version)
        self.live = None

    def _check(self, version: str | None) -> None:
        if version and version != cast("Raw", self.live)["metadata"]["resourceVersion"]:
            raise CONFLICT

    def _write(self, replicas: int) -> Raw:
        self.live = deployment(replicas, 3)
        return self.live


def manifest(replicas: int) -> Raw:
    meta = {"name": "p-r1", "namespace": "ns", "labels": {LABEL_POOL: "p"}, "annotations": {"generation": "2"}}
    return {"metadata": meta | {"ownerReferences": [OWNER]}, "spec": {"replicas": replicas}}


@pytest.mark.parametrize(
    "action",
    [
        SetReplicas("p-r1", 2, None),
        SetReplicas("p-r1", 0, "1"),
        ApplyRevision("p-r1", "r1", 2, manifest(2), "1"),
        ApplyRevision("p-r1", "r1", 1, manifest(1), "1"),
        ApplyRevision("p-r1", "r1", 0, manifest(0), "1"),
    ],
    ids=["a raise", "a fall", "a rendering that raises", "a rendering", "a rendering that lowers"],
)
async def test_write_on_an_outdated_view_is_a_conflict(action: Action) -> None:
    server = ApiServer(cached=1, live=5)
    with pytest.raises(ApiError) as refused:
        await server.do(action)

    assert refused.value.conflict
    assert server.replicas == 5
    assert server.store.of_pool(DEPLOYMENTS, KEY)[0]["spec"]["replicas"] == 5, "the store has the live Deployment"


async def test_edit_whose_revert_conflicts_counts_as_one_edit() -> None:
    """Counted per conflict, three conflicts would open a contest and delay the revert by 15 s."""
    server = ApiServer(cached=1, live=5)
    edited = DeploymentFacts("p-r1", "d1", "1", "r1", 1, 5, drifted=True)
    found: list[Edit] = []
    for _ in range(4):
        found += server.work.edit_conflicts.find_edits([edited], {}, 0.0)
        with pytest.raises(ApiError):
            await server.do(ApplyRevision("p-r1", "r1", 5, manifest(5), "1"))

    assert len(found) == 1
    assert server.work.edit_conflicts.wait("p-r1", 0.0) == 0.0


@pytest.mark.parametrize(("wanted", "after"), [(0, 5), (2, 5), (7, 7)])
async def test_deployment_missing_in_the_store_is_raised_but_not_lowered(wanted: int, after: int) -> None:
    server = ApiServer(cached=1, live=5)
    server.store.remove(DEPLOYMENTS, deployment(1, 1))
    await server.do(ApplyRevision("p-r1", "r1", wanted, manifest(wanted)))

    assert server.replicas == after
    assert server.work.scaled == after - 5


@pytest.mark.parametrize(
    "action",
    [
        SetReplicas("p-r1", 4, None),
        SetReplicas("p-r1", 1, "2"),
        ApplyRevision("p-r1", "r1", 3, manifest(3), "2"),
        DeleteDeployment("p-r1", "d1"),
        DeletePod("p", "u"),
        SetDeletionCost("p", "u", -1),
    ],
    ids=lambda action: type(action).__name__,
)
async def test_former_leader_writes_nothing(action: Action) -> None:
    server = ApiServer(cached=3, live=3)
    server.store.put(DEPLOYMENTS, deployment(3, 2))
    server.leading = False
    with pytest.raises(NotLeadingError):
        await server.do(action)

    assert server.live == deployment(3, 2)


async def test_raise_does_not_lower_a_deployment_that_grew_meanwhile() -> None:
    server = ApiServer(cached=1, live=5)
    server.store.put(DEPLOYMENTS, deployment(5, 2))
    with pytest.raises(ApiError) as refused:
        await server.do(SetReplicas("p-r1", 3, None))

    assert refused.value.conflict
    assert server.replicas == 5


async def test_deployment_that_serves_again_is_not_deleted() -> None:
    server = ApiServer(cached=0, live=5)
    await server.do(DeleteDeployment("p-r1", "d1"))

    assert server.replicas == 5
    assert server.store.of_pool(DEPLOYMENTS, KEY)[0]["spec"]["replicas"] == 5, "the store has the live Deployment"


@pytest.mark.parametrize(
    ("action", "replicas"),
    [
        (SetReplicas("p-r1", 5, None), 5),
        (SetReplicas("p-r1", 1, "2"), 1),
        (ApplyRevision("p-r1", "r1", 3, manifest(3), "2"), 3),
        (DeleteDeployment("p-r1", "d1"), None),
    ],
    ids=["a raise", "a fall", "a rendering", "a deletion"],
)
async def test_write_on_a_current_view_succeeds(action: Action, replicas: int | None) -> None:
    server = ApiServer(cached=3, live=3)
    server.store.put(DEPLOYMENTS, deployment(3, 2))
    await server.do(action)

    assert server.replicas == replicas


@pytest.mark.parametrize(
    ("words", "conflict"),
    [
        ("the server rejected our request due to an error in our request", True),
        ("ValidatingAdmissionPolicy 'no-growth' denied request", False),
    ],
    ids=["a failed test operation", "a policy"],
)
async def test_json_patch_conflicts_only_on_a_failed_test_operation(words: str, conflict: bool) -> None:
    kube = KubeClient(None)
    kube._call = AsyncMock(side_effect=ApiError(422, "Invalid", words))  # type: ignore[method-assign]
    with pytest.raises(ApiError) as refused:
        await kube.json_patch(DEPLOYMENTS, "ns", "p-r1", [])

    assert refused.value.conflict is conflict
