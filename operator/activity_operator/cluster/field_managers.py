"""Finds the other field managers of a Deployment in its managedFields, the API server's record of who set a field."""

from collections.abc import Iterator, Mapping
from typing import Any

from activity_operator.cluster.kube import FIELD_MANAGER
from activity_operator.cluster.resources import Raw

#: The field manager of all controllers in the controller manager; of those only the HorizontalPodAutoscaler scales.
_CONTROLLERS = "kube-controller-manager"
_AUTOSCALER = "kube-controller-manager (a HorizontalPodAutoscaler)"


def foreign_managers(managed: Any) -> list[dict[str, Any]]:
    """Return the entries of managedFields in which another manager owns fields of the spec or the metadata."""
    return [
        {
            "manager": str(entry.get("manager", "")),
            "time": str(entry.get("time", "")),
            "fieldsV1": {
                "f:spec": {name: {} for name in _fields(entry, "f:spec")},
                "f:metadata": {name: {} for name in _fields(entry, "f:metadata")},
            },
        }
        for entry in managed or ()
        if entry.get("manager") != FIELD_MANAGER
        and entry.get("subresource") != "status"
        and (_fields(entry, "f:spec") or _fields(entry, "f:metadata"))
    ]


def last_scaler(live: Raw) -> str:
    """Return the other field manager that wrote `spec.replicas` last, "" without one."""
    manager = _last(entry for entry in _entries(live) if "f:replicas" in _fields(entry, "f:spec"))
    return _AUTOSCALER if manager == _CONTROLLERS else manager


def last_editor(live: Raw) -> str:
    """Return the other field manager that last wrote a field besides the replicas, "" without one."""
    return _last(entry for entry in _entries(live) if _edits(entry))


def named(manager: str) -> str:
    """Return the end of a sentence about an edit: the field manager in parentheses, or ""."""
    return f" (field manager {manager})" if manager else ""


def _edits(entry: Mapping[str, Any]) -> bool:
    return bool({*_fields(entry, "f:spec"), *_fields(entry, "f:metadata")} - {"f:replicas"})


def _entries(live: Raw) -> Iterator[Mapping[str, Any]]:
    yield from foreign_managers(live["metadata"].get("managedFields"))


def _fields(entry: Mapping[str, Any], of: str) -> Mapping[str, Any]:
    return ((entry.get("fieldsV1") or {}).get(of)) or {}


def _last(entries: Iterator[Mapping[str, Any]]) -> str:
    found = max(entries, key=lambda entry: str(entry.get("time", "")), default=None)
    return "" if found is None else str(found["manager"])
