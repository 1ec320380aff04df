"""The write of a revision whose Deployment has pods of another rendering: the pod template stays as applied."""

import copy
from typing import Any, cast

import pytest

from activity_operator.cluster.drift import RENDERING, is_outdated, rendering
from activity_operator.cluster.kube import ApiError
from activity_operator.cluster.resources import DEPLOYMENTS, Raw, Resource
from activity_operator.core.decision import ApplyRevision
from activity_operator.core.manifests import GENERATION
from tests.unit.activity_operator.cluster.test_edits import MANIFEST, Cluster

NEXT: Raw = {
    "metadata": {**MANIFEST["metadata"], "annotations": {GENERATION: "2"}},
    "spec": {"replicas": 1, "image": "good", "new": "in this version"},
}


class Upgraded(Cluster):
    """A fake API server whose Deployment has pods of the former version's rendering; it records merge patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches: list[Raw] = []

    async def merge_patch(self, _: Resource, __: str, ___: str, body: Raw) -> Raw:
        """Patch metadata and replicas, as the API server does; 409 for another resourceVersion."""
        live = cast("Raw", self.live)
        if body["metadata"].get("resourceVersion") != live["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        self.patches.append(body)
        return self.edit(
            lambda live: {"metadata": live["metadata"] | body["metadata"], "spec": live["spec"] | body["spec"]}
        )

    async def declare_next(self, replicas: int, *, keeps: bool = True) -> Raw:
        """Apply the next version's rendering for `replicas`; return the live Deployment."""
        version = "" if self.live is None else self.live["metadata"]["resourceVersion"]
        action = ApplyRevision("p-r1", "r1", replicas, NEXT, version, keeps_template=keeps)
        await self.applier.apply(self.work, (action,))
        return cast("Raw", self.live)


async def upgraded() -> Upgraded:
    """Return a cluster with a Deployment of the former version."""
    cluster = Upgraded()
    await cluster.declare()
    return cluster


def of_earlier_operator(live: Raw) -> Raw:
    """Return the Deployment as an operator wrote it that recorded no rendering."""
    labels = {name: value for name, value in live["metadata"]["labels"].items() if name != RENDERING}
    return {**live, "metadata": {**live["metadata"], "labels": labels, "annotations": {GENERATION: "1"}}}


async def test_metadata_and_replicas_are_applied_with_the_former_template() -> None:
    cluster = await upgraded()
    live = await cluster.declare_next(4)

    assert live["spec"] == {"replicas": 4, "image": "good"}
    assert live["metadata"]["annotations"][GENERATION] == "2"
    assert live["metadata"]["labels"][RENDERING] == rendering(MANIFEST)
    assert (cluster.patches, cluster.events) == ([], [])


async def test_edit_is_reverted_to_the_former_template_with_an_event() -> None:
    cluster = await upgraded()
    edited = cluster.edit(lambda live: {**live, "spec": {**live["spec"], "image": "evil"}})
    cluster.store.put(DEPLOYMENTS, edited)
    live = await cluster.declare_next(1)

    assert live["spec"] == {"replicas": 1, "image": "good"}
    assert [event.message for event in cluster.events] == [
        "Deployment p-r1 was edited by somebody (spec.image); what the pool declares is put back"
    ]


async def test_deployment_of_an_earlier_operator_gets_metadata_and_replicas_only() -> None:
    cluster = await upgraded()
    cluster.store.put(DEPLOYMENTS, cluster.edit(of_earlier_operator))
    applies = cluster.applies
    live = await cluster.declare_next(4)

    assert live["spec"] == {"replicas": 4, "image": "good"}
    assert live["metadata"]["annotations"] == {GENERATION: "2"}
    assert is_outdated(NEXT, live)
    assert (cluster.applies, len(cluster.patches)) == (applies, 1)


async def test_patch_of_an_earlier_deployment_that_changed_is_a_conflict() -> None:
    cluster = await upgraded()
    cluster.store.put(DEPLOYMENTS, cluster.edit(of_earlier_operator))
    stale = ApplyRevision("p-r1", "r1", 4, NEXT, "1", keeps_template=True)

    with pytest.raises(ApiError) as refused:
        await cluster.applier.apply(cluster.work, (stale,))
    assert refused.value.conflict


@pytest.mark.parametrize(("replicas", "new"), [(3, None), (0, "in this version")])
async def test_unknown_deployment_keeps_its_template_unless_it_is_at_zero(replicas: int, new: Any) -> None:
    """The decision did not see the Deployment, because the store does not have it."""
    cluster = await upgraded()
    cluster.edit(lambda live: {**live, "spec": {**live["spec"], "replicas": replicas}})
    cluster.forget()
    live = await cluster.declare_next(3, keeps=False)

    assert live["spec"].get("new") == new
    assert live["spec"]["replicas"] == 3


async def test_deployment_without_pods_is_rendered_again() -> None:
    cluster = await upgraded()
    live = await cluster.declare_next(2, keeps=False)

    assert live["spec"] == {**NEXT["spec"], "replicas": 2}
    assert live["metadata"]["labels"][RENDERING] == rendering(NEXT)


async def test_action_does_not_change_the_rendered_manifest() -> None:
    before = copy.deepcopy(NEXT)
    cluster = await upgraded()
    await cluster.declare_next(4)
    await cluster.declare_next(0, keeps=False)

    assert before == NEXT
