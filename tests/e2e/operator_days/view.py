"""PURE: the operator at one moment of the timeline of its namespace."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activity_worker.contract import GROUP
from tests.e2e.timeline import Moment
from tests.e2e.watches import Raw
from tests.readiness import is_ready

NAME = "activity-operator"


@dataclass(frozen=True)
class Replica:
    """One pod of the operator; `leaving` while it is being deleted, `restarts` of its containers."""

    name: str
    uid: str
    ready: bool
    leaving: bool
    restarts: int


@dataclass(frozen=True)
class OperatorView:
    """The operator's replicas, its Lease, its records of task leases and the nodes, after one change."""

    moment: Moment

    @property
    def replicas(self) -> dict[str, Replica]:
        """Every replica by its pod's name, also those that are being deleted."""
        pods = self.moment.of_kind("Pod")
        found = [pod for pod in pods if pod["metadata"].get("labels", {}).get("app.kubernetes.io/name") == NAME]
        return {pod["metadata"]["name"]: _replica(pod) for pod in found}

    @property
    def holder(self) -> str:
        """The process that holds the Lease, "" if none does: a pod's name, `_`, and an id of the process."""
        return str(self._lease.get("holderIdentity") or "")

    @property
    def leader(self) -> str:
        """The name of the pod whose process holds the Lease, "" if none does."""
        return self.holder.rpartition("_")[0]

    @property
    def acquired_at(self) -> float:
        """When the holder took the Lease, in Unix seconds."""
        return datetime.fromisoformat(self._lease["acquireTime"]).timestamp()

    @property
    def settled(self) -> bool:
        """Whether there are two replicas, both are ready and stay, and one of them leads."""
        replicas = self.replicas
        stay = all(replica.ready and not replica.leaving for replica in replicas.values())
        return stay and len(replicas) == 2 and self.leader in replicas

    @property
    def restarts(self) -> int:
        """The number of restarts of the replicas' containers."""
        return sum(replica.restarts for replica in self.replicas.values())

    def serves(self, name: str) -> bool:
        """Whether the replica exists and is not being deleted."""
        return name in self.replicas and not self.replicas[name].leaving

    def leases(self, namespace: str) -> tuple[int, int]:
        """Count the lease records of a namespace's pools: those without an owner, those with one."""
        wanted = {f"{GROUP}/record": "lease", f"{GROUP}/pool-namespace": namespace}
        secrets = self.moment.of_kind("Secret")
        records = [one for one in secrets if wanted.items() <= one["metadata"].get("labels", {}).items()]
        owned = sum("owner" in record["data"] for record in records)
        return len(records) - owned, owned

    @property
    def takes_reports(self) -> bool:
        """Whether the report Service has a replica for connections of workers."""
        label, service = "kubernetes.io/service-name", f"{NAME}-reports"
        slices = [one for one in self.moment.of_kind("EndpointSlice") if one["metadata"]["labels"][label] == service]
        return any(end["conditions"]["ready"] for one in slices for end in one.get("endpoints") or ())

    @property
    def nodes_are_ready(self) -> bool:
        """Whether every node is Ready."""
        return all(is_ready(node) for node in self.moment.of_kind("Node"))

    @property
    def _lease(self) -> dict[str, Any]:
        return dict(self.moment.get("Lease", NAME).get("spec", {}))


def _replica(pod: Raw) -> Replica:
    return Replica(
        name=pod["metadata"]["name"],
        uid=pod["metadata"]["uid"],
        ready=is_ready(pod),
        leaving="deletionTimestamp" in pod["metadata"],
        restarts=sum(container["restartCount"] for container in pod["status"].get("containerStatuses", [])),
    )
