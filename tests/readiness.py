"""PURE: whether a pod or a node is Ready."""

from collections.abc import Mapping
from typing import Any


def is_ready(raw: Mapping[str, Any]) -> bool:
    """Whether the object says that it is Ready; one without conditions says nothing."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    return any(said["type"] == "Ready" and said["status"] == "True" for said in conditions)
