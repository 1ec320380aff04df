"""The operator's cluster room against a real API server: a namespace a test, the CRD of this tree."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from activity_operator.cluster.kinds import POOLS, Kind
from activity_operator.cluster.kube import ApiError, Credentials, KubeClient, endpoint, from_kubeconfig
from tests.cluster import Cluster, current
from tests.integration.operator.cut import Road, road_to

CRDS = Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
NAMESPACES = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
SERVED_TRIES = 100
CRD_FILE = Path(__file__).parents[3] / "crds" / "activitypools.activitypools.dev.yaml"


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The running local cluster."""
    found = current()
    assert found is not None, "no cluster runs; make cluster-up"
    return found


@pytest.fixture
def load(cluster: Cluster) -> Credentials:
    """Credentials of the cluster's administrator."""
    return from_kubeconfig(str(cluster.kubeconfig))


@pytest.fixture
async def kube(load: Credentials) -> AsyncIterator[KubeClient]:
    """A client of the test's own, with the CRD installed."""
    client = await KubeClient.connect(load)
    await _install_crd(client)
    yield client
    await client.close()


async def _install_crd(client: KubeClient) -> None:
    crd = yaml.safe_load(CRD_FILE.read_text())
    name = crd["metadata"]["name"]
    try:
        await client.get(CRDS, "", name)
    except ApiError:
        await client.apply(CRDS, "", name, crd)
    for _ in range(SERVED_TRIES):
        try:
            await client.list(POOLS)
        except ApiError:
            await asyncio.sleep(0.1)
            continue
        return
    raise AssertionError(f"{name} is not served after {SERVED_TRIES} looks, 0.1 s apart")


@pytest.fixture
async def namespace(kube: KubeClient) -> AsyncIterator[str]:
    """A namespace for one test."""
    name = f"operator-{uuid.uuid4().hex[:8]}"
    made = await kube.create(NAMESPACES, "", {"metadata": {"name": name}})
    yield name
    await kube.delete(NAMESPACES, "", name, made["metadata"]["uid"])


@pytest.fixture
async def road(load: Credentials) -> AsyncIterator[Road]:
    """A way to the API server that the test can cut."""
    async with road_to((await endpoint(load)).server) as road:
        yield road


@pytest.fixture
def writes(cluster: Cluster, namespace: str) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Give the operator's writes in the namespace since the last call, from the audit log, without its Lease."""
    if cluster.audit_log is None:
        pytest.skip("this cluster writes no audit log")
    log = cluster.audit_log.open()
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
