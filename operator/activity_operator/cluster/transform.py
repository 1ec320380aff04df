"""Reduces objects to the fields that the operator reads, because the store holds thousands of pods in memory."""

from activity_operator.api.pod_own import DELETION_COST
from activity_operator.cluster import field_managers
from activity_operator.cluster.resources import DEPLOYMENTS, PODS, Raw, Resource

_META = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "labels")
_STATUS = ("phase", "reason", "message", "startTime", "conditions", "containerStatuses", "initContainerStatuses")


def trim(resource: Resource, raw: Raw) -> Raw:
    """Return the object as the store keeps it: a pod with the fields that are read, others with fewer managedFields."""
    if resource == PODS:
        return _pod(raw)
    meta = {name: value for name, value in raw["metadata"].items() if name != "managedFields"}
    if resource == DEPLOYMENTS and (others := field_managers.foreign_managers(raw["metadata"].get("managedFields"))):
        meta["managedFields"] = others
    return {**raw, "metadata": meta}


def _pod(raw: Raw) -> Raw:
    meta = raw["metadata"]
    kept = {name: meta[name] for name in _META if name in meta}
    kept["ownerReferences"] = meta.get("ownerReferences") or []
    cost = (meta.get("annotations") or {}).get(DELETION_COST)
    if cost is not None:
        kept["annotations"] = {DELETION_COST: cost}
    status = raw.get("status") or {}
    return {
        "metadata": kept,
        "spec": {"nodeName": (raw.get("spec") or {}).get("nodeName", "")},
        "status": {name: status[name] for name in _STATUS if name in status},
    }
