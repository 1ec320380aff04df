"""A snapshot of the machine before `up` and after `down`, which must be equal."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import cgroups, packet_filter, paths

# Counters and random values of the kernel, which change by themselves.
VOLATILE = re.compile(
    r"^(?:fs\.(?:dentry-state|file-nr|inode-nr|inode-state|quota\.\w+|aio-nr)|kernel\.(?:ns_last_pid|random\.\w+|pty\.nr)"
    r"|net\.netfilter\.nf_conntrack_(?:count|buckets)|kernel\.\w*perf_\w+) "
)


@dataclass(frozen=True)
class MachineState:
    """The state that `down` promises to restore."""

    our_processes: list[str]
    mounts: list[str]
    links: list[str]
    addresses: list[str]
    routes: list[str]
    packet_filter: dict[str, list[str]]
    sysctls: list[str]
    cgroups: list[Path]
    folders: dict[str, bool]


def take() -> MachineState:
    """Take the snapshot. Needs root, and iproute2, iptables and procps."""
    return MachineState(
        our_processes=_our_processes(),
        mounts=sorted(line.split(" ", 3)[3] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        links=[re.sub(r"^\d+: ", "", line) for line in _lines("ip", "-oneline", "link")],
        addresses=[re.sub(r"\S+ (?:sec|forever)\b", "", line) for line in _lines("ip", "-oneline", "address")],
        routes=_lines("ip", "route"),
        packet_filter={command: _rules(command) for command in packet_filter.FAMILIES},
        sysctls=[line for line in _lines("sysctl", "--all") if not VOLATILE.match(line)],
        cgroups=cgroups.present(),
        folders={name: Path(name).exists() for name in ("/run/containerd", "/var/lib/cni", "/var/lib/kubelet")},
    )


def _our_processes() -> list[str]:
    everything = (_command_line(folder) for folder in Path("/proc").iterdir() if folder.name.isdigit())
    return [words for words in everything if str(paths.run()) in words]


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _rules(command: str) -> list[str]:
    rules = [re.sub(r"\[\d+:\d+\]", "", line) for line in _lines(f"{command}-save") if not line.startswith("#")]
    if "nf_tables" in "".join(_lines("iptables", "--version")):
        return rules
    # The older back-end keeps a table after it was read; an empty one has no effect.
    tables = [line[1:] for line in rules if line.startswith("*")]
    return [] if all(packet_filter.is_empty(table, rules) for table in tables) else rules


def _lines(*argv: str) -> list[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()
