"""A pool at work, and an API server that answers at once: objects in memory, no server and no sockets."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

from activity_operator.api.times import to_rfc3339
from activity_operator.cluster.kube import ApiError
from activity_operator.cluster.resources import DEPLOYMENTS, PODS, POOLS, Key, Raw, Raws, Resource
from activity_operator.process import Process
from activity_worker.contract import LABEL_POOL, LABEL_REVISION, Report, WorkerState

KEY: Key = ("bench", "pool")
#: Slots of each worker; the number of busy ones changes with each report.
SLOTS = 10
_RS_UID = "replicaset-uid"


class AnsweringApi:
    """The calls of a `KubeClient` that a look makes, over objects in memory by resource and name."""

    def __init__(self) -> None:
        self.objects: dict[tuple[Resource, str], Raw] = {}
        self.version = 1
        self.status_writes = 0

    async def get(self, resource: Resource, namespace: str, name: str) -> Raw:
        """Return an object; a ReplicaSet belongs to the only Deployment. Raises ApiError 404."""
        if resource.kind == "ReplicaSet":
            owner = next(uid_of(raw) for (kind, _), raw in self.objects.items() if kind == DEPLOYMENTS)
            return {"metadata": {"uid": _RS_UID, "ownerReferences": [{"uid": owner, "controller": True}]}}
        if (resource, name) not in self.objects:
            raise ApiError(404, "NotFound", f"no {resource.kind} {name}")
        return self.objects[resource, name]

    async def list(self, resource: Resource, *_: object, **__: object) -> tuple[Raws, str]:
        """Return all objects of a kind."""
        return [raw for (kind, _), raw in self.objects.items() if kind == resource], str(self.version)

    async def create(self, resource: Resource, namespace: str, body: Raw) -> Raw:
        """Store an object."""
        return self._stored(resource, namespace, body["metadata"].get("name", "event"), body)

    async def apply(self, resource: Resource, namespace: str, name: str, body: Raw, **_: object) -> Raw:
        """Store an object as it was applied."""
        return self._stored(resource, namespace, name, body)

    async def apply_status(self, resource: Resource, namespace: str, name: str, body: Raw) -> Raw:
        """Replace the status of an object."""
        self.status_writes += 1
        return self._stored(resource, namespace, name, {**self.objects[resource, name], "status": body["status"]})

    async def json_patch(self, resource: Resource, namespace: str, name: str, operations: Raws) -> Raw:
        """Set replicas, as the last operation says."""
        known = self.objects[resource, name]
        spec = {**known["spec"], "replicas": operations[-1]["value"]}
        return self._stored(resource, namespace, name, {**known, "spec": spec})

    async def merge_patch(self, resource: Resource, namespace: str, name: str, body: Raw) -> Raw:
        """Change nothing: no worker of the benchmark leaves."""
        return self.objects[resource, name]

    async def create_token_review(self, token: str, audience: str) -> Raw:
        """Refuse every token: no worker of the benchmark calls over the network."""
        raise ApiError(403, "Forbidden", "no tokens here")

    def _stored(self, resource: Resource, namespace: str, name: str, body: Raw) -> Raw:
        self.version += 1
        stored = copy.deepcopy(dict(body))
        known = self.objects.get((resource, name))
        identity = {"uid": f"{resource.plural}-{name}"} if known is None else {"uid": uid_of(known)}
        created = {"creationTimestamp": to_rfc3339(datetime.now(UTC))}
        own = {"namespace": namespace, "name": name, "resourceVersion": str(self.version)}
        stored["metadata"] = {**created, **stored["metadata"], **identity, **own}
        self.objects[resource, name] = stored
        return stored


def uid_of(raw: Raw) -> str:
    """Return the object's UID."""
    return str(raw["metadata"]["uid"])


class ActivePool:
    """A pool of `pods` ready workers that all run tasks; the size is pinned, so a look changes no replicas."""

    def __init__(self, pods: int, api: AnsweringApi) -> None:
        self._pods = pods
        self._api = api
        self._turn = 0

    async def begin(self, process: Process) -> None:
        """Create the pool, its Deployment by a first look, its pods and their first reports."""
        spec = {
            "activityArn": "arn:aws:states:us-east-1:123456789012:activity:bench",
            "handlerImage": "registry.invalid/handler:1",
            "maxWorkers": self._pods,
            "replicas": self._pods,
            "slotsPerWorker": SLOTS,
            "podTemplate": {"spec": {"nodeSelector": {"kubernetes.io/arch": "amd64"}}},
        }
        process.store.put(
            POOLS, await self._api.create(POOLS, KEY[0], {"metadata": {"name": KEY[1], "generation": 1}, "spec": spec})
        )
        await process.reconciler.reconcile(KEY)
        revision = next(
            str(raw["metadata"]["labels"][LABEL_REVISION]) for raw in process.store.of_pool(DEPLOYMENTS, KEY)
        )
        for number in range(self._pods):
            process.store.put(PODS, _pod(number, revision))
        for _ in range(self._pods):
            self.report_change(process)

    def report_change(self, process: Process) -> None:
        """Record the next report of the next worker, with another number of busy slots than before."""
        number, round_ = self._turn % self._pods, self._turn // self._pods
        self._turn += 1
        busy = 1 + round_ % SLOTS
        report = Report(
            *KEY, f"pod-{number}", f"pod-uid-{number}", "one", round_ + 1, WorkerState.RUNNING, SLOTS, busy
        )  # fmt: skip
        process.components.reports.record(report, process_now(process))


def process_now(process: Process) -> float:
    """Return the Unix time by which the operator decides."""
    return process.components._services.now()


def _pod(number: int, revision: str) -> Raw:
    """Return a running pod as the API server gives it."""
    since = to_rfc3339(datetime.now(UTC))
    conditions: list[dict[str, Any]] = [
        {"type": kind, "status": "True", "lastTransitionTime": since}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    return {
        "metadata": {
            "name": f"pod-{number}",
            "namespace": KEY[0],
            "uid": f"pod-uid-{number}",
            "resourceVersion": str(1_000_000 + number),
            "creationTimestamp": since,
            "labels": {LABEL_POOL: KEY[1], LABEL_REVISION: revision},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "rs", "uid": _RS_UID, "controller": True}],
        },
        "spec": {"nodeName": "node"},
        "status": {
            "phase": "Running",
            "startTime": since,
            "conditions": conditions,
            "containerStatuses": [
                {"name": "worker", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": since}}}
            ],
        },
    }
