"""PURE: a pool at one moment of the timeline."""

from dataclasses import dataclass
from typing import Any

from activity_worker.contract import LABEL_POOL
from tests.e2e.timeline import Moment
from tests.e2e.watches import Raw
from tests.readiness import is_ready

COST = "controller.kubernetes.io/pod-deletion-cost"


@dataclass(frozen=True)
class PoolView:
    """A pool and what belongs to it, after one change."""

    moment: Moment
    name: str

    @property
    def spec(self) -> dict[str, Any]:
        """The pool's spec, empty when there is no pool."""
        return dict(self.moment.get("ActivityPool", self.name).get("spec", {}))

    @property
    def status(self) -> dict[str, Any]:
        """The pool's status, empty when there is none."""
        return dict(self.moment.get("ActivityPool", self.name).get("status", {}))

    @property
    def pods(self) -> list[Raw]:
        """Its pods that are not being deleted, oldest first."""
        return [pod for pod in self.all_pods if "deletionTimestamp" not in pod["metadata"]]

    @property
    def all_pods(self) -> list[Raw]:
        """Its pods, also those that are being deleted, oldest first."""
        return self._owned("Pod")

    @property
    def workers(self) -> set[str]:
        """The names of `pods`."""
        return {pod["metadata"]["name"] for pod in self.pods}

    @property
    def ready(self) -> set[str]:
        """The names of the pods that are Ready and not being deleted."""
        return {pod["metadata"]["name"] for pod in self.pods if is_ready(pod)}

    @property
    def cordoned(self) -> set[str]:
        """The names of the pods that the operator has chosen to leave."""
        return {pod["metadata"]["name"] for pod in self.pods if COST in pod["metadata"].get("annotations", {})}

    def leaving(self, workers: set[str]) -> set[str]:
        """Return those of these workers that were chosen to leave, or have left."""
        return (workers & self.cordoned) | (workers - self.workers)

    @property
    def deployments(self) -> list[Raw]:
        """Its Deployments, oldest first."""
        return self._owned("Deployment")

    @property
    def revisions(self) -> list[str]:
        """The names of its Deployments, oldest first; a pod's name begins with its Deployment's."""
        return [deployment["metadata"]["name"] for deployment in self.deployments]

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """The last decisions in the status, oldest first."""
        return list(self.status.get("decisions", ()))

    @property
    def lifecycle(self) -> list[dict[str, Any]]:
        """The workers' lifecycle events in the status."""
        return list(self.status.get("events", ()))

    def condition(self, kind: str) -> dict[str, str]:
        """Return a condition of the status; each field is "" if there is none of this type."""
        return condition_of(self.status, kind)

    def says(self, kind: str, status: str, reason: str = "") -> bool:
        """Whether a condition has this status, and this reason if one is given."""
        found = self.condition(kind)
        return found["status"] == status and reason in {"", found["reason"]}

    def events(self, reason: str, kind: str = "") -> list[str]:
        """Return the messages of its Kubernetes Events with this reason, and of this type if one is given."""
        return [
            event["message"]
            for event in self.moment.of_kind("Event")
            if (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("ActivityPool", self.name)
            and event["reason"] == reason
            and kind in {"", event["type"]}
        ]

    def _owned(self, kind: str) -> list[Raw]:
        found = self.moment.of_kind(kind)
        return [item for item in found if item["metadata"].get("labels", {}).get(LABEL_POOL) == self.name]


def condition_of(status: dict[str, Any], kind: str) -> dict[str, str]:
    """Return a condition of a pool's status; each field is "" if there is none of this type."""
    none = {"type": kind, "status": "", "reason": "", "message": ""}
    return next((found for found in status.get("conditions", ()) if found["type"] == kind), none)
