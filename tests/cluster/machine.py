"""The machine's settings that the cluster changes: recorded before the first change, restored by `down`."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster import packet_filter, paths
from tests.cluster.shell import ClusterError, run, succeeds

# Written by the kubelet, kube-proxy, the bridge plugin or us.
SYSCTLS = (
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/forwarding",
    "net/ipv4/conf/default/forwarding",
    "net/ipv4/conf/all/accept_redirects",
    "net/ipv4/conf/all/route_localnet",
    "net/ipv4/vs/conntrack",
    "net/bridge/bridge-nf-call-iptables",
    "net/bridge/bridge-nf-call-ip6tables",
    "net/ipv6/conf/all/forwarding",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_tcp_be_liberal",
    "net/netfilter/nf_conntrack_tcp_timeout_close_wait",
    "net/netfilter/nf_conntrack_tcp_timeout_established",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
#: A kubelet sets these at its start and ends when it cannot (pkg/util/sysctl and the container manager of Kubernetes).
OF_A_KUBELET = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
# Folders outside the cache whose place the daemons do not let us choose.
FOLDERS = ("/run/containerd", "/var/lib/cni", "/var/log/containers", "/var/lib/kubelet/device-plugins")
EMPTY_PARENTS = (Path("/var/lib/kubelet"),)
MNT_DETACH = 2


@dataclass(frozen=True)
class Snapshot:
    """The sysctls, the packet filter's tables that existed, and which of the folders did not exist."""

    sysctls: dict[str, str]
    tables: dict[str, list[str]]
    absent_folders: list[str]


def remember() -> None:
    """Record the machine's state, unless a crashed run has recorded it: the first record is the right one."""
    note = _note()
    if note.exists():
        return
    note.parent.mkdir(parents=True, exist_ok=True)
    names = (*SYSCTLS, *_forwarding_of_interfaces())
    # A read-only setting, as in a bare root, is not this cluster's: another one on the machine may change it meanwhile.
    values = {name: value for name in names if _is_ours(name) and (value := read_sysctl(name)) is not None}
    absent = [folder for folder in FOLDERS if not Path(folder).exists()]
    unfinished = note.with_suffix(".part")
    unfinished.write_text(json.dumps(asdict(Snapshot(values, packet_filter.tables(), absent)), indent=1))
    unfinished.rename(note)


def restore(bridge: str, network: str) -> None:
    """Restore the recorded state: mounts, links, packet filter, sysctls, folders. All processes must have ended."""
    unmount_below(paths.run())
    _delete_bridge(bridge)
    note = _note()
    if note.exists():
        _restore(Snapshot(**json.loads(note.read_text())))
    _unlink_cni_results(network)
    _unlink_dead_logs()


def _delete_bridge(bridge: str) -> None:
    """Delete the bridge and the host's ends of the pods' links.

    The kernel deletes a link some time after the pod's network namespace has ended: seconds later on a busy machine.
    """
    if not Path(f"/sys/class/net/{bridge}").exists():
        return
    for port in sorted(Path(f"/sys/class/net/{bridge}/brif").iterdir()):
        if not succeeds(["ip", "link", "delete", port.name]) and port.exists():
            raise ClusterError(f"`ip link delete {port.name}` failed, and the link still exists; delete it by hand")
    run(["ip", "link", "delete", bridge])


def _restore(before: Snapshot) -> None:
    packet_filter.remove_ours(before.tables)
    for name, value in before.sysctls.items():
        if read_sysctl(name) not in (value, None):  # an interface may be gone meanwhile
            Path("/proc/sys", name).write_text(value)
    for folder in before.absent_folders:
        shutil.rmtree(folder, ignore_errors=True)
        parent = Path(folder).parent
        if parent in EMPTY_PARENTS and parent.is_dir() and not any(parent.iterdir()):
            parent.rmdir()


def _is_ours(name: str) -> bool:
    """Return whether the kernel setting can be written here."""
    return os.access(Path("/proc/sys", name), os.W_OK)


def _forwarding_of_interfaces() -> list[str]:
    # Writing ip_forward writes all of these.
    return sorted(f"net/ipv4/conf/{folder.name}/forwarding" for folder in Path("/proc/sys/net/ipv4/conf").iterdir())


@contextmanager
def sysctls(values: Mapping[str, str], settings: Path = Path("/proc/sys")) -> Iterator[None]:
    """Give kernel settings these values, those that exist here, and restore them at the end."""
    before = {name: (settings / name).read_text() for name in values if (settings / name).exists()}
    changed = {name: value for name, value in before.items() if value.strip() != values[name]}
    try:
        for name in changed:
            (settings / name).write_text(values[name])
        yield
    finally:
        for name, value in changed.items():
            (settings / name).write_text(value)


def read_sysctl(name: str) -> str | None:
    """A kernel setting by its path below /proc/sys; None when this kernel lacks it."""
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return None


def mounts_below(folder: Path) -> list[str]:
    """Mount points in or below `folder`, innermost last."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    decoded = [re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point) for point in points]
    return [point for point in decoded if Path(point) == folder or folder in Path(point).parents]


def unmount_below(folder: Path) -> None:
    """Detach every mount in or below `folder`, busy or not. Raises OSError when the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    for point in reversed(mounts_below(folder)):
        if libc.umount2(point.encode(), MNT_DETACH) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"unmounting {point}: {os.strerror(code)}")


def _unlink_cni_results(network: str) -> None:
    results = Path("/var/lib/cni/results")
    for ours in results.glob(f"{network}-*-eth0"):
        container = ours.name.removeprefix(f"{network}-").removesuffix("-eth0")
        ours.unlink(missing_ok=True)
        (results / f"cni-loopback-{container}-lo").unlink(missing_ok=True)


def _unlink_dead_logs() -> None:
    folder = Path("/var/log/containers")
    if not folder.is_dir():
        return
    for link in folder.iterdir():
        if link.is_symlink() and paths.run() in link.readlink().parents:
            link.unlink()


def _note() -> Path:
    return paths.run() / "machine-before.json"


def check_root_is_ours(folder: Path) -> None:
    """Raise ClusterError when something is still mounted below `folder`, which is about to be deleted."""
    if left := mounts_below(folder):
        raise ClusterError(f"still mounted below {folder}: {', '.join(left[:5])}")
