"""PURE: manifests that several suites send to an API server."""

from typing import Any

from activity_operator.cluster.resources import POOLS, Raw


def pool(name: str, spec: Any) -> Raw:
    """Return a pool's manifest; `spec` may be anything, so that a suite can send what is wrong."""
    return {"apiVersion": POOLS.api_version, "kind": POOLS.kind, "metadata": {"name": name}, "spec": spec}
