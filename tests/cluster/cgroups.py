"""The cluster's own control groups: every process of the cluster, daemon or container, is below `/activitypool`.

By them `down` finds its processes after any crash, and leaves all other processes alone.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.cluster.shell import ClusterError, wait_until

ROOT = Path("/sys/fs/cgroup")
NAME = "activitypool"
DAEMONS = f"{NAME}/daemons"
KILL_SECONDS = 10.0
#: The cluster's share of the processors, as a multiple of one process outside. By default all pods together have the
#: share of one process, and stall beside a dozen test processes.
SHARES = 20
#: The kernel's share of one process: in cpu.shares (cgroup v1), in cpu.weight (v2).
ONE_SHARE = {"cpu.shares": 1024, "cpu.weight": 100}


def is_v2() -> bool:
    """Whether the machine has the unified hierarchy only (cgroup v2)."""
    return (ROOT / "cgroup.controllers").exists()


def prepare() -> None:
    """Make `/activitypool` in every hierarchy (the kubelet needs one in each) and the daemons' group."""
    if is_v2():
        ours = ROOT / NAME
        ours.mkdir(exist_ok=True)
        wanted = (ROOT / "cgroup.controllers").read_text().split()
        for folder in (ROOT, ours):
            for controller in wanted:
                _enable(folder, controller)
        groups = [ours]
    else:
        groups = make(NAME)
    for group in groups:
        for setting, one in ONE_SHARE.items():
            if (group / setting).exists():
                (group / setting).write_text(str(one * SHARES))
    daemons_group().mkdir(exist_ok=True)


def make(name: str) -> list[Path]:
    """Make a group of this name in every hierarchy; return the folders."""
    groups = [hierarchy / name for hierarchy in _hierarchies()]
    for group in groups:
        group.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):  # a new v1 cpuset has no CPU, so no process could run in it
            if not is_v2() and (group / setting).exists():
                (group / setting).write_text((group.parent / setting).read_text())
    return groups


def daemons_group() -> Path:
    """The group of the daemons and the containers' shims, in the hierarchy that tracks processes."""
    return (ROOT if is_v2() else ROOT / "pids") / DAEMONS


def processes(below: str = NAME) -> set[int]:
    """Ids of all processes in the group `below` and its descendants, over all hierarchies."""
    found: set[int] = set()
    for hierarchy in _hierarchies():
        for folder in _descendants(hierarchy / below):
            try:
                found.update(int(line) for line in (folder / "cgroup.procs").read_text().split())
            except OSError:  # removed meanwhile, or a threaded group
                continue
    return found - {0}


def kill(below: str) -> None:
    """Kill every process in the group and its descendants, until none is left.

    Raises ClusterError when a process survives 10 s of SIGKILL.
    """

    def gone() -> bool:
        left = processes(below)
        for pid in left:
            _kill_one(pid)
        return not left

    def survivors() -> list[int]:
        return sorted(processes(below))

    what = f"no process of cgroup /{below} survives SIGKILL"
    wait_until(gone, what, timeout_seconds=KILL_SECONDS, every_seconds=0.02, details=survivors)


def remove(below: str = NAME) -> None:
    """Remove the group `below` and its descendants from every hierarchy. They must be empty."""
    for hierarchy in _hierarchies():
        for folder in sorted(_descendants(hierarchy / below), reverse=True):
            _remove_one(folder)


def present() -> list[Path]:
    """Our groups that exist now."""
    return [hierarchy / NAME for hierarchy in _hierarchies() if (hierarchy / NAME).is_dir()]


def _hierarchies() -> list[Path]:
    if is_v2():
        return [ROOT]
    # cpu and cpu,cpuacct may be links to one mount.
    return sorted({entry.resolve() for entry in ROOT.iterdir() if (entry / "cgroup.procs").exists()})


def _descendants(folder: Path) -> Iterator[Path]:
    for path, _, _ in os.walk(folder):
        yield Path(path)


def _enable(folder: Path, controller: str) -> None:
    try:
        (folder / "cgroup.subtree_control").write_text(f"+{controller}")
    except OSError as refused:
        if controller in ("cpu", "memory", "pids"):
            raise ClusterError(f"cgroup controller {controller} cannot be enabled in {folder}: {refused}") from refused


def _kill_one(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, os.WNOHANG)
    except (ProcessLookupError, ChildProcessError):
        return


def _remove_one(folder: Path) -> None:
    def removed() -> bool:
        if folder.exists():
            # The kernel releases a group a moment after its last process has ended.
            with suppress(OSError):
                folder.rmdir()
        return not folder.exists()

    wait_until(removed, f"cgroup {folder} is removed", timeout_seconds=KILL_SECONDS, every_seconds=0.02)
