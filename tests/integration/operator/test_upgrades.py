"""An operator of another version renders other pods: edits of a pool leave its running pods alone.

The two versions render another report URL. The pods have no node; Kubernetes replaces them nevertheless if their
Deployment gets another template.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from activity_operator.api.pod_own import WORKER_CONTAINER
from activity_operator.cluster.drift import APPLIED_SPEC, RENDERING
from activity_operator.cluster.kube import FIELD_MANAGER, Credentials, KubeClient
from activity_operator.cluster.resources import DEPLOYMENTS, PODS, POOLS, REPLICA_SETS, Raw
from activity_operator.core.manifests import GENERATION
from activity_worker.contract import Env
from tests.eventually import eventually
from tests.integration.operator.arrange import Running, operator, pool

OLD_PORT, NEW_PORT = 443, 8443


class Pool:
    """The pool `p` of a namespace, as a user changes it, and the objects that belong to it."""

    def __init__(self, kube: KubeClient, load: Credentials, namespace: str) -> None:
        self.kube, self.load, self.namespace = kube, load, namespace

    @asynccontextmanager
    async def version(self, port: int) -> AsyncIterator[Running]:
        """Run the operator's version that renders this port of the report URL."""
        async with operator(self.namespace, self.load, real_core=True, report_service_port=port) as running:
            yield running

    async def objects(self, resource: Any = DEPLOYMENTS) -> list[Raw]:
        """Return the namespace's objects of a kind that are not being deleted, oldest first."""
        found, _ = await self.kube.list(resource, self.namespace)
        found.sort(key=lambda one: str(one["metadata"]["creationTimestamp"]))
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    async def pods(self) -> set[str]:
        """Return the UIDs of its pods."""
        return {one["metadata"]["uid"] for one in await self.objects(PODS)}

    async def edit(self, **spec: Any) -> None:
        """Change the pool's spec, and wait until its newest Deployment has the new generation."""
        await self.kube.merge_patch(POOLS, self.namespace, "p", {"spec": spec})
        generation = str((await self.kube.get(POOLS, self.namespace, "p"))["metadata"]["generation"])

        async def applied() -> bool:
            found = (await self.objects())[-1]
            return bool(found["metadata"]["annotations"][GENERATION] == generation)

        await eventually(f"the newest Deployment is of generation {generation}", applied)

    async def has_pods(self, number: int) -> set[str]:
        """Wait until the pool has this number of pods; return their UIDs."""

        async def complete() -> bool:
            (found, *_) = await self.objects() or [{}]
            counted = (found.get("status") or {}).get("replicas", 0) == number
            return counted and len(await self.pods()) == number

        await eventually(f"the pool has {number} pods", complete)
        return await self.pods()


def report_url(deployment: Raw) -> str:
    """Return the report URL in the environment of the Deployment's workers."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    (worker,) = (one for one in containers if one["name"] == WORKER_CONTAINER)
    return str(next(one["value"] for one in worker["env"] if one["name"] == Env.REPORT_URL))


def applied_fields(deployment: Raw) -> set[str]:
    """Return the fields of the Deployment's spec that the operator's server-side apply owns."""
    entries = deployment["metadata"]["managedFields"]
    ours = (one for one in entries if (one["manager"], one["operation"]) == (FIELD_MANAGER, "Apply"))
    return {name for one in ours for name in one["fieldsV1"].get("f:spec", {})}


async def test_edits_after_an_upgrade_and_a_rollback_touch_no_pod(
    kube: KubeClient, load: Credentials, namespace: str
) -> None:
    mine = Pool(kube, load, namespace)
    async with mine.version(OLD_PORT):
        await kube.create(POOLS, namespace, pool("p", minWorkers=2))
        before = await mine.has_pods(2)
        (first,) = await mine.objects()

    for number, port in enumerate((NEW_PORT, OLD_PORT, NEW_PORT)):
        async with mine.version(port):
            await mine.edit(maxWorkers=11 + number)
            await mine.edit(replicas=3)
            added = await mine.has_pods(3)
            await mine.edit(replicas=2)
            assert before <= added
            assert await mine.has_pods(2) <= added
            before = await mine.pods()
            (now,) = await mine.objects()
            assert now["spec"]["template"] == first["spec"]["template"]
            assert applied_fields(now) >= {"f:template", "f:selector", "f:strategy"}
            assert len(await mine.objects(REPLICA_SETS)) == 1

    async with mine.version(NEW_PORT):
        await mine.edit(handlerImage="registry.invalid/handler:2")
        newest = (await mine.objects())[-1]
        assert report_url(newest) == f"{report_url(first)}:{NEW_PORT}"


async def test_edited_template_returns_to_what_the_former_version_applied(
    kube: KubeClient, load: Credentials, namespace: str
) -> None:
    mine = Pool(kube, load, namespace)
    async with mine.version(OLD_PORT):
        await kube.create(POOLS, namespace, pool("p", minWorkers=1))
        await mine.has_pods(1)
        (first,) = await mine.objects()

    async with mine.version(NEW_PORT):
        image = {"containers": [{"name": WORKER_CONTAINER, "image": "registry.invalid/evil:1"}]}
        edit = {"spec": {"template": {"spec": image}}}
        await kube.merge_patch(DEPLOYMENTS, namespace, first["metadata"]["name"], edit)

        async def restored() -> bool:
            (found,) = await mine.objects()
            return bool(found["spec"]["template"] == first["spec"]["template"])

        await eventually("the edit is reverted to the former version's template", restored)


async def test_deployment_without_a_recorded_rendering_keeps_its_pods(
    kube: KubeClient, load: Credentials, namespace: str
) -> None:
    """An operator before 0.2 recorded no rendering."""
    mine = Pool(kube, load, namespace)
    async with mine.version(OLD_PORT):
        await kube.create(POOLS, namespace, pool("p", minWorkers=2))
        before = await mine.has_pods(2)
        (first,) = await mine.objects()
    unknown = {"labels": {RENDERING: None}, "annotations": {APPLIED_SPEC: None}}
    await kube.merge_patch(DEPLOYMENTS, namespace, first["metadata"]["name"], {"metadata": unknown})

    async with mine.version(NEW_PORT):
        await mine.edit(maxWorkers=11)
        await mine.edit(replicas=3)
        assert before <= await mine.has_pods(3)
        (now,) = await mine.objects()
        assert now["spec"]["template"] == first["spec"]["template"]
        assert RENDERING not in now["metadata"]["labels"]

        await mine.edit(replicas=0)
        await mine.has_pods(0)
        await mine.edit(replicas=2)
        await mine.has_pods(2)
        (now,) = await mine.objects()
        assert report_url(now) == f"{report_url(first)}:{NEW_PORT}"
        assert RENDERING in now["metadata"]["labels"]
