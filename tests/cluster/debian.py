"""What the embedded cluster takes from Debian: named by the command that shows whether it is there."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.cluster.progress import step
from tests.cluster.shell import ClusterError, run, succeeds

# command (or file) -> package that brings it
NEEDED = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
    "iptables": "iptables",
    "nft": "nftables",
    "ip": "iproute2",
    "gcc": "gcc",
    "/usr/include/unistd.h": "libc6-dev",
    "setsid": "util-linux",
    "/etc/ssl/certs/ca-certificates.crt": "ca-certificates",
}


def docker_answers() -> bool:
    """Whether a Docker engine answers `docker info`."""
    return shutil.which("docker") is not None and succeeds(["docker", "info"])


def why_not_embedded() -> str | None:
    """What keeps this machine from running the embedded cluster; None when nothing does."""
    if sys.platform != "linux":
        return f"this machine runs {sys.platform}, the embedded cluster needs Linux"
    if os.geteuid() != 0:
        return "the embedded cluster needs root (it makes a bridge, mounts and cgroups)"
    packages = missing_packages()
    if packages and shutil.which("apt-get") is None:
        return f"missing: {', '.join(packages)}; and there is no apt-get to install them with"
    return None


def missing_packages() -> list[str]:
    """The Debian packages whose commands are not on this machine."""
    missing = {package for thing, package in NEEDED.items() if not _is_here(thing)}
    return sorted(missing)


def install_missing() -> None:
    """Install what is missing, and nothing else. Raises ClusterError with apt's last lines."""
    packages = missing_packages()
    if not packages:
        return
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    with step(f"apt-get install {' '.join(packages)}"):
        run(["apt-get", "update", "-q"], env=quiet)
        run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages], env=quiet)
    if still := missing_packages():
        raise ClusterError(f"apt-get installed them, but these are still not found: {', '.join(still)}")


def _is_here(thing: str) -> bool:
    return Path(thing).exists() if thing.startswith("/") else shutil.which(thing) is not None
