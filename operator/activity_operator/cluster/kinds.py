"""The kinds of Kubernetes object the operator touches, and the URL path of each."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

Raw = dict[str, Any]
Raws = list[Raw]
#: (namespace, name) of a pool: what the queue, the registry and the sentinels go by.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: its group ("" for core), version, plural name and whether its objects live in namespaces."""

    group: str
    version: str
    plural: str
    name: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """What goes into an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of a collection (no name), an object, or its subresource; names are quoted."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = ["namespaces", namespace] if self.namespaced and namespace else []
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join([root, *(quote(part, safe="") for part in parts)])


POOLS = Kind("activitypools.dev", "v1alpha1", "activitypools", "ActivityPool")
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Kind("apps", "v1", "replicasets", "ReplicaSet")
PODS = Kind("", "v1", "pods", "Pod")
SECRETS = Kind("", "v1", "secrets", "Secret")
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap")
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS = Kind("events.k8s.io", "v1", "events", "Event")
TOKEN_REVIEWS = Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
