"""etcd is restored from a backup under a running operator: resourceVersions go back, and so do the objects."""

import asyncio
from collections.abc import Iterator

import pytest

from activity_operator.cluster.kube import Credentials, KubeClient
from activity_operator.cluster.resources import POOLS
from tests.eventually import eventually
from tests.integration.crd.arrange import Kubectl
from tests.integration.operator.arrange import find, operator, pool
from tests.integration.operator.conftest import CONTROLLERS, TOKEN, _kubeconfig
from tests.servers.control_plane import ControlPlane, control_plane

#: Writes between the backup and the restore: more than there are after it, so that no version reaches an old one.
WRITES = 400


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of this module's own, because a restore concerns every client."""
    with control_plane({TOKEN: "test"}) as made:
        made.wait_ready()
        Kubectl(made, _kubeconfig(made)).install_crd()
        made.start_controllers(CONTROLLERS)
        yield made


async def test_operator_believes_a_restored_etcd_and_obeys_later_edits(
    plane: ControlPlane,
    kube: KubeClient,
    load: Credentials,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def image() -> str:
        found = await find(kube, namespace, "p-r1")
        return "" if found is None else str(found["spec"]["template"]["spec"]["containers"][0]["image"])

    async def wait_image(expected: str) -> None:
        async def is_there() -> bool:
            return await image() == expected

        await eventually(f"the Deployment has image {expected}", is_there, seconds=120)

    async def edit(handler_image: str) -> None:
        await kube.merge_patch(POOLS, namespace, "p", {"spec": {"handlerImage": handler_image}})

    async with operator(namespace, load, sweep_seconds=10.0, watch_grace_seconds=3.0) as running:
        await kube.create(POOLS, namespace, pool("p", handlerImage="registry.invalid/handler:1"))
        await wait_image("registry.invalid/handler:1")
        backup = await asyncio.to_thread(plane.save)
        await asyncio.to_thread(plane.wait_ready)
        await edit("registry.invalid/handler:2")
        for number in range(WRITES):
            await kube.merge_patch(POOLS, namespace, "p", {"metadata": {"annotations": {"written": str(number)}}})
        await wait_image("registry.invalid/handler:2")

        await asyncio.to_thread(plane.restore, backup)
        await asyncio.to_thread(plane.wait_ready)
        assert await image() == "registry.invalid/handler:1"
        restored = int((await kube.get(POOLS, namespace, "p"))["metadata"]["resourceVersion"])
        await edit("registry.invalid/handler:3")
        await kube.create(POOLS, namespace, pool("q"))

        await wait_image("registry.invalid/handler:3")
        await eventually("the new pool has its Deployment", lambda: find(kube, namespace, "q-r1"), seconds=120)
        assert running.process._failure == ""
        assert int((await kube.get(POOLS, namespace, "p"))["metadata"]["resourceVersion"]) < restored + WRITES
        assert "as after a restore of etcd" in caplog.text
