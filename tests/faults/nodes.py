"""Nodes that Kubernetes' controllers monitor: each has a Node object and renews its Lease until it is cut off."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from activity_operator.cluster.resources import LEASES
from tests.eventually import eventually
from tests.faults.api import Api, Raw, RefusedError
from tests.faults.kubelet import Kubelet, Node

#: Seconds of silence until a node is unreachable (50 by default), and between two heartbeats of a node (10 by default).
MISSED_SECONDS, RENEW_SECONDS = 6.0, 0.5
NAMES = ("near", "far")
LEASES_NAMESPACE = "kube-node-lease"
UNREACHABLE, NOT_READY = "node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"


def tolerating(seconds: int) -> Raw:
    """Return a podTemplate whose pods tolerate an unreachable node for `seconds`; Kubernetes' default is 300."""
    found = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key in (UNREACHABLE, NOT_READY)
    ]
    return {"spec": {"tolerations": found}}


class WatchedNode(Node):
    """A node with a Node object: while it is reachable, it reports Ready and renews its Lease."""

    def __init__(self, api: Api, name: str) -> None:
        super().__init__(name)
        self._api = api
        self._path = f"/api/v1/nodes/{name}"

    async def run(self) -> None:
        """Join the cluster and send heartbeats until cancelled."""
        await self._api.call("POST", "/api/v1/nodes", {"metadata": {"name": self.name}})
        lease = {"metadata": {"name": self.name}, "spec": self._lease()}
        await self._api.call("POST", LEASES.path(LEASES_NAMESPACE), lease)
        written = -1
        while True:
            await self.reachable.wait()
            if written != self.returns:
                written = self.returns
                await self._api.call("PATCH", f"{self._path}/status", {"status": {"conditions": [_ready()]}})
            await self._api.call("PATCH", LEASES.path(LEASES_NAMESPACE, self.name), {"spec": self._lease()})
            await asyncio.sleep(RENEW_SECONDS)

    async def taints(self) -> set[str]:
        """Return the node's taints as KEY:EFFECT."""
        found = await self._api.call("GET", self._path, expect=(404,)) or {"spec": {}}
        return {f"{taint['key']}:{taint['effect']}" for taint in found["spec"].get("taints") or ()}

    async def missed(self) -> bool:
        """Whether the node is tainted as unreachable, so that its pods are evicted when their toleration ends."""
        return f"{UNREACHABLE}:NoExecute" in await self.taints() and (await self._says_ready()) == "Unknown"

    async def well(self) -> bool:
        """Whether the node is Ready and has no taint."""
        return not await self.taints() and (await self._says_ready()) == "True"

    async def _says_ready(self) -> str:
        found = await self._api.call("GET", self._path, expect=(404,)) or {"status": {}}
        conditions = found["status"].get("conditions") or ()
        return next((str(one["status"]) for one in conditions if one["type"] == "Ready"), "")

    def _lease(self) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": now}


def _ready() -> dict[str, str]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "played", **times}


@asynccontextmanager
async def watched_nodes(api: Api, kubelet: Kubelet) -> AsyncIterator[list[WatchedNode]]:
    """Let a kubelet play two nodes; new pods are bound to them."""
    nodes = [WatchedNode(api, name) for name in NAMES]

    async def served() -> bool:
        try:
            return await api.call("GET", f"/api/v1/namespaces/{LEASES_NAMESPACE}", expect=(404,)) is not None
        except RefusedError:
            return False

    await eventually("there is a namespace for the nodes' Leases", served)
    alive = [asyncio.create_task(node.run()) for node in nodes]
    try:
        for node in nodes:
            await eventually(f"node {node.name} is Ready", node.well)
        kubelet.nodes = list(nodes)
        yield nodes
    finally:
        for task in alive:
            task.cancel()
        ended = await asyncio.gather(*alive, return_exceptions=True)
    for error in ended:
        if not isinstance(error, asyncio.CancelledError):
            raise RuntimeError(f"a node ended: {error!r}")
