"""The binaries that are built from the Go module proxy, and their places in the cache.

Each folder of `tools/` is a Go module that pins one family of commands. A binary is in a folder named by a hash of its
module and of the build flags. `make prepare` builds them (tests/prepare).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import paths
from tests.cluster.shell import ClusterError, MissingError

TOOLS = Path(__file__).parent / "tools"
STRIP = "-s -w"


@dataclass(frozen=True)
class Tool:
    """One command: its name, the folder of `tools/` that pins it, and the Go package to build."""

    name: str
    module: str
    package: str


KUBERNETES = tuple(
    Tool(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}")
    for name in (
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubelet",
        "kube-proxy",
        "kubectl",
    )
)
ETCD = Tool("etcd", "etcd", "go.etcd.io/etcd/server/v3")
COREDNS = Tool("coredns", "coredns", ".")
HELM = Tool("helm", "helm", "helm.sh/helm/v4/cmd/helm")
KIND = Tool("kind", "kind", "sigs.k8s.io/kind")
BY_NAME = {tool.name: tool for tool in (*KUBERNETES, ETCD, COREDNS, HELM, KIND)}
EMBEDDED = tuple(tool.name for tool in (*KUBERNETES, ETCD, COREDNS, HELM))


def find(names: Iterable[str]) -> dict[str, Path]:
    """Return the path of each named binary. Raises MissingError with those that are not built."""
    found = {name: destination(BY_NAME[name]) for name in names}
    if missing := [name for name, path in found.items() if not path.exists()]:
        raise MissingError(f"not built from tests/cluster/tools as it is now: {', '.join(missing)}")
    return found


def kubernetes_version() -> str:
    """The Kubernetes version pinned in `tools/kubernetes/go.mod`, such as `v1.35.4`."""
    pinned = re.search(
        r"^require k8s\.io/kubernetes (v\S+)", (TOOLS / "kubernetes" / "go.mod").read_text(), re.MULTILINE
    )
    if pinned is None:
        raise ClusterError(f"{TOOLS / 'kubernetes' / 'go.mod'} has no line `require k8s.io/kubernetes vX.Y.Z`")
    return pinned[1]


def flags(module: str) -> list[str]:
    """Return the flags of `go build` for a module."""
    # One set of flags for each module: another flag for one binary would compile all packages twice.
    ldflags = STRIP if module != "kubernetes" else f"{STRIP} {_version_stamps()}"
    return ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", ldflags]


def _version_stamps() -> str:
    # Without them kubectl and Helm fail to parse the server's version.
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".")
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    stamps["gitCommit"] = "unknown"
    return " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamps.items())


def destination(tool: Tool) -> Path:
    """Return the path of a binary, built or not."""
    digest = hashlib.sha256(" ".join(flags(tool.module)).encode())
    for source in sorted((TOOLS / tool.module).iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return paths.cluster() / "go" / f"{tool.module}-{digest.hexdigest()[:12]}" / tool.name
