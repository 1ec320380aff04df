"""The Kubernetes resources that the operator uses, and their URL paths."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

Raw = dict[str, Any]
Raws = list[Raw]
#: (namespace, name) of a pool: the key of the queue, the worker registry and the sentinels.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource: group ("" for core), version, plural name, kind, and whether its objects have a namespace."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of a collection (no name), an object, or its subresource; names are quoted."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = ["namespaces", namespace] if self.namespaced and namespace else []
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join([root, *(quote(part, safe="") for part in parts)])


POOLS = Resource("activitypools.dev", "v1alpha1", "activitypools", "ActivityPool")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
PODS = Resource("", "v1", "pods", "Pod")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
