"""The running cluster, for tests and the demo, and its record on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.cluster import paths


@dataclass(frozen=True)
class Cluster:
    """A running cluster: its addresses, and its parameters."""

    kubeconfig: Path
    """Kubeconfig of an administrator."""
    audit_log: Path | None
    """The API server's audit log: one JSON document a line, level Metadata, written before the answer is sent."""
    kubectl: Path
    """A kubectl of the cluster's version."""
    helm: Path
    """Helm 4."""
    kind: Literal["embedded", "kind"]
    """`embedded` (daemons on this machine) or `kind` (in Docker)."""
    host_ip: str
    """The address at which a pod reaches this machine."""


def write_record(cluster: Cluster) -> None:
    """Write the running cluster's record for later commands."""
    document = {key: str(value) if isinstance(value, Path) else value for key, value in sorted(vars(cluster).items())}
    paths.record().parent.mkdir(parents=True, exist_ok=True)
    paths.record().write_text(json.dumps(document, indent=1))


def read_record() -> Cluster | None:
    """The cluster that `up` recorded last, None after `down`."""
    try:
        noted = json.loads(paths.record().read_text())
    except (OSError, ValueError):
        return None
    return Cluster(
        kubeconfig=Path(noted["kubeconfig"]),
        audit_log=Path(noted["audit_log"]) if noted["audit_log"] else None,
        kubectl=Path(noted["kubectl"]),
        helm=Path(noted["helm"]),
        kind=noted["kind"],
        host_ip=noted["host_ip"],
    )
