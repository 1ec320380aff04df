"""How the operator maintains Deployments: it creates, sizes and restores them, or leaves them alone."""

import time
from typing import Any

import pytest

from activity_operator.cluster import apply
from activity_operator.cluster.drift import RENDERING
from activity_operator.cluster.kube import Credentials, KubeClient
from activity_operator.cluster.resources import DEPLOYMENTS, EVENTS, POOLS, Raw
from tests.eventually import eventually
from tests.integration.operator.arrange import find, operator, pool, replicas


async def events(kube: KubeClient, namespace: str, reason: str) -> list[Raw]:
    """Return the Events with this reason."""
    found, _ = await kube.list(EVENTS, namespace)
    return [event for event in found if event["reason"] == reason]


async def test_pool_gets_its_deployment_and_a_status(kube: KubeClient, load: Credentials, namespace: str) -> None:
    async with operator(namespace, load) as running:
        made = await kube.create(POOLS, namespace, pool("p"))
        deployment = await eventually("Deployment p-r1 exists", lambda: find(kube, namespace, "p-r1"))
        assert deployment["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
        await eventually("the status is of generation 1", lambda: status(kube, namespace, "p", "observedGeneration", 1))
        assert await running.get("/readyz") == (200, "ok\n")
        code, text = await running.get("/metrics")
        assert code == 200
        assert f'activitypool_replicas_max{{activitypool="p",namespace="{namespace}"}} 10\n' in text


async def status(kube: KubeClient, namespace: str, name: str, field: str, value: Any) -> bool:
    """Whether a field of the status has that value."""
    found = await kube.get(POOLS, namespace, name)
    return bool(found["status"].get(field) == value)


async def test_first_scale_up_is_written_at_once_and_later_ones_are_combined(
    kube: KubeClient, load: Credentials, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than a busy machine stalls.
    monkeypatch.setattr(apply, "COALESCE_SECONDS", 3.0)
    async with operator(namespace, load) as running:
        await kube.create(POOLS, namespace, pool("p"))
        await eventually("pool p is settled", lambda: settled(running, "p"))
        began = time.monotonic()
        for size in range(1, 9):
            running.core.sizes["p"] = size
            running.process.queue.add((namespace, "p"))
            await eventually("the queue is empty", lambda: not len(running.process.queue))
            if size == 1:
                await eventually("the operator knows 1 replica", lambda: stored(running, "p-r1") == 1)
                assert time.monotonic() - began < apply.COALESCE_SECONDS
        await eventually("the operator knows 8 replicas", lambda: stored(running, "p-r1") == 8)
        found = await find(kube, namespace, "p-r1")

        assert found is not None
        assert found["metadata"]["generation"] <= 4, "created, first raise, gathered raises"


def stored(running: Any, name: str) -> int:
    """Return the replicas in the operator's cache."""
    raw = running.process.store.by_name(DEPLOYMENTS, running.core.namespace, name)
    return int(raw["spec"]["replicas"])


def settled(running: Any, name: str) -> bool:
    """Whether the pool has its Deployment and the operator has nothing left to do."""
    raw = running.process.store.by_name(DEPLOYMENTS, running.core.namespace, f"{name}-r1")
    return raw is not None and not len(running.process.queue)


async def test_edit_of_a_deployment_is_reverted_with_an_event(
    kube: KubeClient, load: Credentials, namespace: str
) -> None:
    async with operator(namespace, load) as running:
        await kube.create(POOLS, namespace, pool("p"))
        await eventually("pool p is settled", lambda: settled(running, "p"))
        container = {"name": "worker", "image": "registry.invalid/evil:1"}
        edit = {"spec": {"template": {"spec": {"containers": [container]}}}}
        await kube.merge_patch(DEPLOYMENTS, namespace, "p-r1", edit)

        async def restored() -> bool:
            found = await find(kube, namespace, "p-r1")
            assert found is not None
            return bool(
                found["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.invalid/handler:1"
                and found["spec"]["template"]["spec"]["containers"][0]["env"][0] == {"name": "A", "value": "1"}
            )

        await eventually("the edit is reverted", restored)
        reverted = await eventually("an EditReverted event exists", lambda: events(kube, namespace, "EditReverted"))
        assert len(reverted) == 1
        assert "image" in reverted[0]["note"]


async def test_deployment_rendered_by_another_operator_version_is_kept(
    kube: KubeClient, load: Credentials, namespace: str
) -> None:
    async with operator(namespace, load) as running:
        await kube.create(POOLS, namespace, pool("p"))
        await eventually("pool p is settled", lambda: settled(running, "p"))
    async with operator(namespace, load) as running:
        running.core.template = {"env": [{"name": "NEW_IN_THIS_VERSION", "value": "1"}]}
        await eventually("pool p is settled", lambda: settled(running, "p"))
        await running.process.resyncer.resync()
        await eventually("the pool is reconciled twice", lambda: len(running.core.seen) >= 2)
        found = await find(kube, namespace, "p-r1")

        assert found is not None
        assert found["spec"]["template"]["spec"]["containers"][0]["env"][0]["name"] == "A"
        assert not any(
            observation.deployments[0].drifted for observation in running.core.seen if observation.deployments
        )


async def test_quantities_normalized_by_the_api_server_are_no_edit(
    kube: KubeClient, load: Credentials, namespace: str
) -> None:
    async with operator(namespace, load) as running:
        await kube.create(POOLS, namespace, pool("p"))
        await eventually("pool p is settled", lambda: settled(running, "p"))
        found = await find(kube, namespace, "p-r1")
        assert found is not None
        assert found["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"
        await running.process.resyncer.resync()
        await eventually("the pool is reconciled three times", lambda: len(running.core.seen) >= 3)

        assert not running.core.seen[-1].deployments[0].drifted


async def test_refused_manifest_is_shown_in_the_status(kube: KubeClient, load: Credentials, namespace: str) -> None:
    async with operator(namespace, load) as running:
        running.core.template = {"imagePullPolicy": "Whenever"}
        await kube.create(POOLS, namespace, pool("p"))

        async def refused() -> bool:
            found = await kube.get(POOLS, namespace, "p")
            conditions = found["status"].get("conditions") or [{}]
            return bool(conditions[0].get("reason") == "PodTemplateRejected" and "Whenever" in conditions[0]["message"])

        await eventually("the API server's refusal is seen", refused)
        assert await find(kube, namespace, "p-r1") is None


async def test_unknown_field_is_refused_and_not_dropped(kube: KubeClient, load: Credentials, namespace: str) -> None:
    async with operator(namespace, load) as running:
        running.core.template = {"imagePolicy": "Never"}
        await kube.create(POOLS, namespace, pool("p"))
        await eventually(
            "the rejected field imagePolicy is seen",
            lambda: any("imagePolicy" in observation.rejected for observation in running.core.seen),
        )


async def test_deployment_of_another_owner_is_not_taken_over(
    kube: KubeClient, load: Credentials, namespace: str
) -> None:
    labels = {"app": "theirs"}
    container = {"name": "web", "image": "registry.invalid/web:1"}
    spec = {
        "replicas": 0,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    await kube.create(DEPLOYMENTS, namespace, {"metadata": {"name": "p-r1"}, "spec": spec})
    async with operator(namespace, load) as running:
        await kube.create(POOLS, namespace, pool("p"))
        await eventually("the pool is reconciled twice", lambda: len(running.core.seen) >= 2)
        found = await find(kube, namespace, "p-r1")

        assert found is not None
        assert RENDERING not in found["metadata"].get("labels", {})


async def test_state_of_a_deleted_pool_is_dropped(kube: KubeClient, load: Credentials, namespace: str) -> None:
    async with operator(namespace, load) as running:
        made = await kube.create(POOLS, namespace, pool("p"))
        await eventually("pool p is settled", lambda: settled(running, "p"))
        await kube.delete(POOLS, namespace, "p", made["metadata"]["uid"])
        await eventually(
            "the deleted pool's signals are withdrawn",
            lambda: ((namespace, "p"), True) in running.outside.sources.withdrawn,
        )
        _, text = await running.get("/metrics")

        assert f'activitypool="p",namespace="{namespace}"' not in text
        assert f'activitypool="p",namespace="{namespace}",condition="Ready"' not in text


async def test_two_pools_on_one_activity_are_reported(kube: KubeClient, load: Credentials, namespace: str) -> None:
    arn = "arn:aws:states:us-east-1:123456789012:activity:shared"
    async with operator(namespace, load) as running:
        for name in ("a", "b"):
            await kube.create(POOLS, namespace, pool(name, activityArn=arn))

        def rivals() -> set[tuple[str, tuple[str, ...]]]:
            return {(observation.pool.name, observation.sharing_pools) for observation in running.core.seen}

        expected = {("a", (f"{namespace}/b",)), ("b", (f"{namespace}/a",))}
        await eventually("every rival of the pool is known", lambda: expected <= rivals())


async def test_status_with_only_new_counts_is_written_every_ten_seconds(
    kube: KubeClient, load: Credentials, namespace: str
) -> None:
    async with operator(namespace, load) as running:
        await kube.create(POOLS, namespace, pool("p"))
        await eventually("the status is of generation 1", lambda: status(kube, namespace, "p", "observedGeneration", 1))
        for count in range(1, 6):
            running.core.backlog = count
            running.process.queue.add((namespace, "p"))
            await eventually("the queue is empty", lambda: not len(running.process.queue))
        assert not await status(kube, namespace, "p", "backlog", 5)
        await eventually(
            "the status has a backlog of 5", lambda: status(kube, namespace, "p", "backlog", 5), seconds=30
        )


async def test_invalid_spec_is_reported_and_nothing_is_created(
    kube: KubeClient, load: Credentials, namespace: str
) -> None:
    bad = {"spec": {"containers": [{"name": "worker", "imagePullPolicy": 7}], "hostNetwork": True}}
    async with operator(namespace, load) as running:
        await kube.create(POOLS, namespace, pool("p", podTemplate=bad))

        async def is_stalled() -> bool:
            found = await kube.get(POOLS, namespace, "p")
            types = {c["type"]: (c["status"], c["message"]) for c in found["status"].get("conditions", ())}
            return types.get("Stalled", ("", ""))[0] == "True" and "podTemplate" in types["Ready"][1]

        await eventually("the rejection is in the status", is_stalled)
        assert not running.core.seen
        assert await eventually(
            "a PodTemplateRejected event exists", lambda: events(kube, namespace, "PodTemplateRejected")
        )
        assert await replicas(kube, namespace, "p-r1") is None
