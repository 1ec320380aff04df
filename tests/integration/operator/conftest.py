"""The operator's cluster package with a real API server: a namespace for each test, the CRD of this tree."""

import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from activity_operator.cluster.kube import Credentials, KubeClient, from_kubeconfig, read_access
from activity_operator.cluster.resources import Resource
from tests.cluster.control_plane import AUDIT_POLICY
from tests.integration.crd.arrange import Kubectl
from tests.integration.operator.cut import Road, road_to
from tests.servers.control_plane import ControlPlane, control_plane, kubeconfig

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
TOKEN = "token-of-test"
CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
)


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """A control plane with the CRD, for all tests of the session."""
    with control_plane({TOKEN: "test"}, audit_policy=AUDIT_POLICY) as made:
        made.wait_ready()
        Kubectl(made, _kubeconfig(made)).install_crd()
        made.start_controllers(CONTROLLERS)
        yield made


@pytest.fixture
def load(plane: ControlPlane) -> Credentials:
    """Credentials of a user who may do everything."""
    return from_kubeconfig(str(_kubeconfig(plane)))


def _kubeconfig(plane: ControlPlane) -> Path:
    return kubeconfig(plane.folder / "kubeconfig", plane.url, "test", TOKEN, plane.ca_file)


@pytest.fixture
async def kube(load: Credentials) -> AsyncIterator[KubeClient]:
    """The test's own client."""
    client = await KubeClient.connect(load)
    yield client
    await client.close()


@pytest.fixture
async def namespace(kube: KubeClient) -> AsyncIterator[str]:
    """A namespace for one test."""
    name = f"operator-{uuid.uuid4().hex[:8]}"
    made = await kube.create(NAMESPACES, "", {"metadata": {"name": name}})
    yield name
    await kube.delete(NAMESPACES, "", name, made["metadata"]["uid"])


@pytest.fixture
async def road(load: Credentials) -> AsyncIterator[Road]:
    """A connection to the API server that the test can cut."""
    async with road_to((await read_access(load)).server) as road:
        yield road


@pytest.fixture
def writes(plane: ControlPlane, namespace: str) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Give the operator's writes in the namespace since the last call, from the audit log, without its Lease."""
    log = plane.audit_log.open()
    log.seek(0, 2)

    def since_last() -> list[dict[str, Any]]:
        found = []
        for line in log:
            if namespace not in line:
                continue
            entry = json.loads(line)
            what = entry.get("objectRef", {})
            ours = what.get("namespace") == namespace and not entry["user"]["username"].startswith("system:")
            if ours and entry["verb"] not in {"get", "list", "watch"} and what.get("resource") != "leases":
                found.append(entry)
        return found

    yield since_last
    log.close()
