"""The installed operator: its replicas, who leads, and what may befall them."""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activity_worker.contract import GROUP
from tests.cluster import catalogue, find_image, load_image
from tests.cluster.shell import run
from tests.e2e.operator_days import node
from tests.e2e.operator_days.audit import Audit
from tests.e2e.stage import ROOT, SYSTEM, Stage, wait_for
from tests.readiness import is_ready

NAME = "activity-operator"
PODS = ("pods", "-n", SYSTEM, "-l", f"app.kubernetes.io/name={NAME}")
TAKEOVER_SECONDS = 120.0  # 15 s of Lease and a few for the first look; a crowded machine takes longer


@dataclass(frozen=True)
class Replica:
    """One pod of the operator as the API server has it now."""

    name: str
    uid: str
    ready: bool
    going: bool
    restarts: int


@dataclass(frozen=True)
class Operator:
    """`audit` began before the first bad day; `measured` gathers sentences for the end of the run."""

    stage: Stage
    audit: Audit
    measured: list[str]

    def replicas(self) -> list[Replica]:
        """Return every replica, those that are ending among them."""
        return [_replica(pod) for pod in json.loads(self.stage.kubectl("get", *PODS, "-o", "json"))["items"]]

    def leader(self) -> str:
        """Return the name of the pod that holds the Lease, "" while nobody does."""
        return self.holder().rpartition("_")[0]

    def holder(self) -> str:
        """Return the process that holds the Lease: a pod's name and what is new with every process of it."""
        return str(self._lease().get("holderIdentity") or "")

    def well(self) -> bool:
        """Whether two replicas are ready, none is ending, and one of them leads."""
        replicas = self.replicas()
        fine = len(replicas) == 2 and all(replica.ready and not replica.going for replica in replicas)
        return fine and self.leader() in {replica.name for replica in replicas}

    def settle(self) -> str:
        """Wait until all is well; returns the leader."""
        wait_for("the operator has two ready replicas and a leader", self.well, 300)
        return self.leader()

    def signal(self, names: Iterable[str], name: str) -> float:
        """Send a signal to the replicas' processes; returns when, in Unix seconds."""
        chosen = [replica.uid for replica in self.replicas() if replica.name in set(names)]
        at = time.time()
        assert node.signal(self.stage.cluster, chosen, NAME, name) == len(chosen)
        return at

    def await_takeover(self, former: str, since: float, how: str) -> None:
        """Wait until another process than the holder `former` leads, and note how long that took.

        That may be one of the same pod: a container that was killed is back within seconds, and competes.
        """
        taken = f"another process than {former} leads"
        try:
            wait_for(taken, lambda: self.holder() not in {"", former}, TAKEOVER_SECONDS)
        except AssertionError as late:
            raise AssertionError(f"{late}: {self._lease()} {self.replicas()}") from late
        self.note_takeover(since, how)

    def note_takeover(self, since: float, how: str) -> None:
        """Note when the process that leads took the Lease."""
        taken = datetime.fromisoformat(self._lease()["acquireTime"]).timestamp()
        self.measured.append(f"{how}: led again after {taken - since:.1f} s")

    def leases(self, namespace: str, *, owned: bool) -> int:
        """Count the records of leases of a namespace's pools that have, or have not, an owner."""
        select = f"{GROUP}/record=lease,{GROUP}/pool-namespace={namespace}"
        found = json.loads(self.stage.kubectl("get", "secrets", "-n", SYSTEM, "-l", select, "-o", "json"))["items"]
        return sum(("owner" in record["data"]) == owned for record in found)

    def upgrade(self, **values: Any) -> None:
        """Upgrade the release to these chart values, keeping the others, and wait until it has rolled out."""
        given = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
        self.helm("upgrade", NAME, str(ROOT / "charts" / NAME), "--reuse-values", *given, "--wait", "--timeout=400s")

    def release(self) -> str:
        """Return the number of the installed release."""
        return str(json.loads(self.helm("list", "--output", "json"))[0]["revision"])

    def helm(self, *words: str) -> str:
        """Run Helm on the operator's namespace; returns its output."""
        cluster = self.stage.cluster
        return run([cluster.helm, f"--kubeconfig={cluster.kubeconfig}", *words, "-n", SYSTEM], timeout_seconds=420)

    def _lease(self) -> dict[str, Any]:
        """Return what the Lease says."""
        lease = json.loads(self.stage.kubectl("get", "lease", NAME, "-n", SYSTEM, "-o", "json"))
        return dict(lease["spec"])


def next_version() -> str:
    """Load an operator that renders workers otherwise than today's; returns its tag."""
    load_image(find_image(catalogue.next_operator()))
    return "next"


def _replica(pod: dict[str, Any]) -> Replica:
    status = pod["status"]
    return Replica(
        name=pod["metadata"]["name"],
        uid=pod["metadata"]["uid"],
        ready=is_ready(pod),
        going="deletionTimestamp" in pod["metadata"],
        restarts=sum(container["restartCount"] for container in status.get("containerStatuses", [])),
    )
