"""A control plane for fault tests, with the CRD, an audit log and one user for each operator replica.

Its controllers are Kubernetes' own, so a ReplicaSet chooses the pods that it removes as in any cluster.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import yaml

from activity_operator.cluster.resources import POOLS
from tests.eventually import eventually
from tests.faults import audit
from tests.faults.api import Api
from tests.servers import control_plane

CRD_FILE = Path(__file__).parents[2] / "crds" / "activitypools.activitypools.dev.yaml"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CONTROLLERS = ("deployment-controller", "replicaset-controller", "garbage-collector-controller")
#: The controllers that mark a node unreachable and evict its pods.
OF_NODES = ("node-lifecycle-controller", "taint-eviction-controller")
#: The users of the replicas, one each, so that the audit log tells them apart.
REPLICAS = ("operator-a", "operator-b", "operator-c")
#: Static tokens by user; every user may do everything here. Other tests check the operator's rights.
TOKENS = {user: f"token-of-{user}" for user in ("test", *REPLICAS)}
#: The suffix of a user's next token.
RENEWED = "-renewed"


@dataclass(frozen=True, slots=True)
class FaultCluster:
    """A running control plane: its address, its CA, the test's own client, and a folder for files."""

    url: str
    trust: ssl.SSLContext
    api: Api
    folder: Path


@asynccontextmanager
async def fault_cluster(*, missed_seconds: float = 0.0) -> AsyncIterator[FaultCluster]:
    """Start a control plane with the CRD of this tree; it and its data are removed at the end.

    With `missed_seconds` the node controllers run, too: a node that is silent for that long is marked unreachable, and
    its pods are evicted.
    """
    async with AsyncExitStack() as stack:
        users = {token + end: user for user, token in TOKENS.items() for end in ("", RENEWED)}
        plane = stack.enter_context(control_plane.control_plane(users, audit_policy=audit.POLICY))
        session = aiohttp.ClientSession(
            plane.url,
            headers={"Authorization": f"Bearer {TOKENS['test']}"},
            connector=aiohttp.TCPConnector(ssl=plane.trust, limit=0),
        )
        stack.push_async_callback(session.close)
        api = Api(session)
        await eventually("the API server is ready", api.ready, seconds=control_plane.START_SECONDS)
        await _install_crd(api)
        if missed_seconds:
            seen = (f"--node-monitor-grace-period={missed_seconds:g}s", "--node-monitor-period=500ms")
            plane.start_controllers((*CONTROLLERS, *OF_NODES), *seen)
        else:
            plane.start_controllers(CONTROLLERS)
        yield FaultCluster(plane.url, plane.trust, api, plane.folder)


def kubeconfig(path: Path, url: str, user: str, ca_file: Path | None = None, *, renewed: bool = False) -> Path:
    """Write a kubeconfig for one of the users, with the user's next token if `renewed`; the write is atomic."""
    return control_plane.kubeconfig(path, url, user, TOKENS[user] + RENEWED * renewed, ca_file)


async def _install_crd(api: Api) -> None:
    await api.call("POST", CRDS, yaml.safe_load(CRD_FILE.read_text(encoding="utf-8")))

    async def served() -> bool:
        return await api.call("GET", POOLS.path(), expect=(404, 429)) is not None

    await eventually("ActivityPools are served", served, seconds=control_plane.START_SECONDS)
