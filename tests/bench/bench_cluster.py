"""What the operator needs for a measurement: the local cluster, two namespaces, an identity.

All are removed at the end.

The operator under measurement watches the whole cluster. Another operator or other pools would be measured with it, so
a benchmark refuses to start beside them.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from activity_operator.cluster.facts import seconds
from activity_operator.cluster.resources import LEASES, POOLS, Resource
from tests.bench.api_server import ApiServer, RefusedError
from tests.cluster import Cluster, up
from tests.cluster.progress import step
from tests.eventually import eventually

#: The operator's own namespace, and that of the pools.
SYSTEM, POOLS_NAMESPACE = "activitypool-bench", "activitypool-bench-pools"
#: Its ServiceAccount, by which the audit log tells its requests apart.
ACCOUNT = "operator-under-measure"
USER = f"system:serviceaccount:{SYSTEM}:{ACCOUNT}"
#: The default name of the Lease that the operator's replicas compete for.
LEASE_NAME = "activity-operator"
CRD_FILE = Path(__file__).parents[2] / "crds" / "activitypools.activitypools.dev.yaml"

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
TOKEN_REQUESTS = Resource("authentication.k8s.io", "v1", "tokenrequests", "TokenRequest")
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)

TOKEN_SECONDS = 3600
GONE_SECONDS = 120.0


class ClusterTakenError(RuntimeError):
    """Other objects in the cluster would be measured too; the message names them and the fix."""


@dataclass(frozen=True, slots=True)
class BenchCluster:
    """A cluster ready for one operator. `kubeconfig` is the operator's, `folder` is for files of this run."""

    cluster: Cluster
    api: ApiServer
    kubeconfig: Path
    folder: Path


@asynccontextmanager
async def bench_cluster() -> AsyncIterator[BenchCluster]:
    """Make the local cluster ready for one operator; boot it if it is down. Raises ClusterTakenError, ClusterError."""
    cluster = await asyncio.to_thread(up)
    with tempfile.TemporaryDirectory(prefix="activitypool-bench-") as name:
        async with ApiServer(cluster.kubeconfig) as api:
            await refuse_if_taken(api)
            brought = await _bring_crd(api)
            try:
                with step("namespaces for the operator and its pools"):
                    await _clear(api)
                    kubeconfig = await _set_up(api, Path(name))
                yield BenchCluster(cluster, api, kubeconfig, Path(name))
            finally:
                with step("putting the cluster back"):
                    await _clear(api)
                    if brought:
                        await api.delete(CRDS, "", f"{POOLS.plural}.{POOLS.group}")


async def refuse_if_taken(api: ApiServer) -> None:
    """Raise ClusterTakenError if an operator leads in this cluster, or if it has pools of other users."""
    leases = await api.get(LEASES.path()) or {}
    for lease in leases.get("items", ()):
        if lease["metadata"]["name"] == LEASE_NAME and _is_held(lease["spec"], time.time()):
            where = f"{lease['metadata']['namespace']}/{LEASE_NAME}"
            raise ClusterTakenError(
                f"an operator runs in this cluster (Lease {where} is held by {lease['spec']['holderIdentity']}): "
                "scale its Deployment to 0, or use a cluster without one"
            )
    pools = await api.get(POOLS.path()) or {}
    others = sorted({pool["metadata"]["namespace"] for pool in pools.get("items", ())} - {POOLS_NAMESPACE})
    if others:
        raise ClusterTakenError(
            f"there are ActivityPools in {', '.join(others)}, which the operator would look after too: "
            "delete them, or use a cluster without any"
        )


def _is_held(spec: dict[str, Any], now: float) -> bool:
    lasts = float(spec.get("leaseDurationSeconds") or 0)
    return bool(spec.get("holderIdentity")) and seconds(spec.get("renewTime")) + lasts > now


async def _bring_crd(api: ApiServer) -> bool:
    """Install the CRD of this tree if there is none; return whether it was installed."""
    if await api.get(CRDS.path("", f"{POOLS.plural}.{POOLS.group}")) is not None:
        return False
    await api.create(CRDS, "", yaml.safe_load(CRD_FILE.read_text(encoding="utf-8")))

    async def served() -> bool:
        try:
            return await api.get(POOLS.path()) is not None
        except RefusedError:  # 429 while the storage is being made
            return False

    await eventually("the ActivityPool resource is served", served, seconds=30)
    return True


async def _set_up(api: ApiServer, folder: Path) -> Path:
    """Make the namespaces and the operator's identity; return its kubeconfig."""
    for name in (SYSTEM, POOLS_NAMESPACE):
        await api.create(NAMESPACES, "", {"metadata": {"name": name}})
    await api.create(ACCOUNTS, SYSTEM, {"metadata": {"name": ACCOUNT}})
    subject = {"kind": ACCOUNTS.kind, "name": ACCOUNT, "namespace": SYSTEM}
    role = {"apiGroup": BINDINGS.group, "kind": "ClusterRole", "name": "cluster-admin"}
    await api.create(BINDINGS, "", {"metadata": {"name": SYSTEM}, "roleRef": role, "subjects": [subject]})
    spec = {"spec": {"expirationSeconds": TOKEN_SECONDS}}
    asked = await api.create(ACCOUNTS, SYSTEM, {**spec, **_as(TOKEN_REQUESTS)}, of=f"{ACCOUNT}/token")
    return _kubeconfig(folder / "operator.kubeconfig", api, asked["status"]["token"])


def _as(resource: Resource) -> dict[str, str]:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


def _kubeconfig(path: Path, api: ApiServer, token: str) -> Path:
    cluster = {"server": api.url, "certificate-authority": str(api.ca_file)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bench", "cluster": cluster}],
        "users": [{"name": "operator", "user": {"token": token}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "operator"}}],
        "current-context": "bench",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


async def _clear(api: ApiServer) -> None:
    """Remove all objects of the benchmark, also those of a killed run, and wait until they are gone."""
    await api.delete(BINDINGS, "", SYSTEM)
    for name in (POOLS_NAMESPACE, SYSTEM):
        await api.delete(NAMESPACES, "", name)

    async def gone() -> bool:
        paths = [NAMESPACES.path("", name) for name in (POOLS_NAMESPACE, SYSTEM)]
        return not any([await api.get(path) for path in paths])

    await eventually("the benchmark's namespaces are gone", gone, seconds=GONE_SECONDS)
