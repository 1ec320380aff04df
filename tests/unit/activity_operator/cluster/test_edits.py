"""Foreign edits of a pool's Deployment are reverted with an Event; the operator's own writes cause none."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activity_operator.cluster.apply import REJECTED_SECONDS, Applier, Work
from activity_operator.cluster.kube import ApiError, ApiUnreachableError
from activity_operator.cluster.resources import DEPLOYMENTS, Key, Raw, Resource
from activity_operator.cluster.store import Store
from activity_operator.core.decision import (
    Action,
    ApplyRevision,
    DeleteDeployment,
    DeletePod,
    EmitEvent,
    SetDeletionCost,
    SetReplicas,
)
from activity_operator.core.manifests import GENERATION
from activity_operator.watch.freshness import Freshness
from activity_worker.contract import LABEL_POOL

KEY: Key = ("ns", "p")
POOL = {"metadata": {"namespace": "ns", "name": "p", "uid": "u1"}}
OWNER = {"uid": "u1", "controller": True}
MANIFEST: Raw = {
    "metadata": {
        "name": "p-r1",
        "namespace": "ns",
        "labels": {LABEL_POOL: "p"},
        "annotations": {GENERATION: "1"},
        "ownerReferences": [OWNER],
    },
    "spec": {"replicas": 1, "image": "good"},
}


class Cluster:
    """A fake API server with one Deployment, and an applier whose store holds only its own writes."""

    def __init__(self) -> None:
        self.live: Raw | None = None
        self.events: list[EmitEvent] = []
        self.unreachable = False
        self.refusal: ApiError | None = None
        self.applies = 0
        self.now = 0.0
        self._version = 0
        self.store = Store(lambda _: None)
        self.work = Work(KEY, POOL)
        self.applier = Applier(
            cast("Any", self),
            self.store,
            Freshness(60, lambda: 0.0),
            cast("Any", SimpleNamespace(leading=True)),
            clock=lambda: self.now,
            emit_event=lambda _, event: self.events.append(event),
        )

    async def get(self, *_: Any) -> Raw:
        if self.live is None:
            raise ApiError(404, "NotFound", "no such Deployment")
        return self.live

    async def apply(self, _: Resource, __: str, ___: str, body: Raw) -> Raw:
        self.applies += 1
        if self.refusal is not None:
            raise self.refusal
        return self.edit(lambda _: body)

    async def json_patch(self, _: Resource, __: str, ___: str, operations: list[Raw]) -> Raw:
        if self.unreachable:
            raise ApiUnreachableError("no answer")
        replicas = operations[-1]["value"]
        return self.edit(lambda live: {**live, "spec": {**live["spec"], "replicas": replicas}})

    async def merge_patch(self, *_: Any) -> Raw:
        assert self.refusal is not None
        raise self.refusal

    async def delete(self, *_: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.live = None

    def edit(self, change: Callable[[Raw], Raw]) -> Raw:
        """Change the Deployment, as any client may."""
        changed = change(self.live or {})
        self._version += 1
        changed["metadata"] = {**changed["metadata"], "uid": "d1", "resourceVersion": str(self._version)}
        self.live = changed
        return changed

    async def declare(self) -> None:
        """Apply the pool's Deployment as the operator does."""
        await self.applier.apply(self.work, (ApplyRevision("p-r1", "r1", 1, MANIFEST),))

    def forget(self) -> None:
        """Remove the Deployment from the store, as the watch does after a deletion or a lost label."""
        self.store.remove(DEPLOYMENTS, cast("Raw", self.live))


async def test_new_deployment_is_not_reported_as_an_edit() -> None:
    cluster = Cluster()
    await cluster.declare()
    await cluster.declare()

    assert not cluster.events
    assert cluster.work.replicas == {"p-r1": 1}


async def test_deleted_deployment_is_created_again_with_an_event() -> None:
    cluster = Cluster()
    await cluster.declare()
    cluster.forget()
    await cluster.delete()
    await cluster.declare()

    assert cluster.live is not None
    assert [event.reason for event in cluster.events] == ["EditReverted"]
    assert cluster.events[0].message == "Deployment p-r1 was deleted by somebody; the operator creates it again"


async def test_removed_pool_label_is_reported_as_an_edit() -> None:
    cluster = Cluster()
    await cluster.declare()
    cluster.forget()
    live = cast("Raw", cluster.live)
    cluster.edit(lambda _: {**live, "metadata": {**live["metadata"], "labels": {}}})
    await cluster.declare()

    assert cluster.events[0].message.startswith("Deployment p-r1 was edited by somebody (metadata.labels.")


async def test_deployment_that_the_operator_deleted_returns_without_event() -> None:
    cluster = Cluster()
    await cluster.declare()
    cluster.forget()
    await cluster.applier.apply(cluster.work, (DeleteDeployment("p-r1", "d1"),))
    await cluster.declare()

    assert not cluster.events


async def test_write_without_answer_clears_the_known_replicas() -> None:
    cluster = Cluster()
    await cluster.declare()
    cluster.unreachable = True
    cluster.now = 10.0
    with pytest.raises(ApiUnreachableError):
        await cluster.applier.apply(cluster.work, (SetReplicas("p-r1", 3, None),))
    assert cluster.work.replicas == {}

    cluster.unreachable, cluster.now = False, 20.0
    await cluster.applier.apply(cluster.work, (SetReplicas("p-r1", 3, None),))
    assert cluster.work.replicas == {"p-r1": 3}


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (ApiError(422, "Invalid", "spec.template is wrong"), "PodTemplateRejected"),
        (ApiError(400, "BadRequest", "unknown field"), "PodTemplateRejected"),
        (ApiError(500, "InternalError", "failed to create typed patch object"), "PodTemplateRejected"),
        (ApiError(403, "Forbidden", "exceeded quota: few"), "QuotaExceeded"),
    ],
    ids=str,
)
async def test_rejected_template_is_recorded_and_retried_after_a_pause(refusal: ApiError, reason: str) -> None:
    cluster = Cluster()
    cluster.refusal = refusal
    await cluster.declare()
    await cluster.declare()

    assert cluster.work.rejected is not None
    assert (cluster.work.rejected.reason, cluster.applies) == (reason, 1)

    cluster.refusal, cluster.now = None, cluster.now + REJECTED_SECONDS
    await cluster.declare()
    assert cluster.applies == 2
    assert not cluster.work.rejected


async def test_internal_server_error_is_not_a_rejection() -> None:
    cluster = Cluster()
    cluster.refusal = ApiError(500, "InternalError", "etcd has no leader")

    with pytest.raises(ApiError):
        await cluster.declare()
    assert cluster.work.rejected is None


@pytest.mark.parametrize(
    ("action", "status"),
    [
        (SetDeletionCost("w1", "u1", -1000), 404),
        (SetDeletionCost("w1", "u1", -1000), 409),
        (DeletePod("w1", "u1"), 409),
    ],
    ids=["cost of a deleted pod", "cost of a new pod", "deletion of a new pod"],
)
async def test_pod_that_was_replaced_meanwhile_is_not_changed(action: Action, status: int) -> None:
    cluster = Cluster()
    cluster.refusal = ApiError(status, "Gone", "not that pod")

    await cluster.applier.apply(cluster.work, (action,))

    assert cluster.work.writes == 0


async def test_raise_below_the_live_replicas_is_a_conflict() -> None:
    cluster = Cluster()
    await cluster.declare()
    cluster.store.put(DEPLOYMENTS, cluster.edit(lambda live: {**live, "spec": {**live["spec"], "replicas": 9}}))

    with pytest.raises(ApiError, match="has grown since"):
        await cluster.applier.apply(cluster.work, (SetReplicas("p-r1", 4, None),))

    assert cluster.live is not None
    assert cluster.live["spec"]["replicas"] == 9
