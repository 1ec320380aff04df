"""Who else wrote a Deployment last, by its managedFields: the API server's own record of who set which field."""

from collections.abc import Iterator, Mapping
from typing import Any

from activity_operator.cluster.kube import FIELD_MANAGER
from activity_operator.cluster.resources import Raw

#: Under this name every controller of the controller manager writes; of those only autoscalers scale.
_CONTROLLERS = "kube-controller-manager"
_AUTOSCALER = "kube-controller-manager (a HorizontalPodAutoscaler)"


def foreign_managers(managed: Any) -> list[dict[str, Any]]:
    """Return of `metadata.managedFields` what names others who wrote the spec or the metadata, none when nobody did."""
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
    """Return the field manager that wrote `spec.replicas` last, "" when it was nobody else."""
    manager = _last(entry for entry in _entries(live) if "f:replicas" in _fields(entry, "f:spec"))
    return _AUTOSCALER if manager == _CONTROLLERS else manager


def last_editor(live: Raw) -> str:
    """Return the field manager that wrote anything but replicas last, "" when it was nobody else."""
    return _last(entry for entry in _entries(live) if _edits(entry))


def named(manager: str) -> str:
    """Return what a sentence about an edit ends with."""
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
