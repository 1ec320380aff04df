"""The Debian packages of the suites, the demo and the local cluster: which there are, and where their programs lie.

`make prepare` installs them (tests/prepare). Everything else only looks for them here.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.shell import MissingError


@dataclass(frozen=True)
class Program:
    """A program or file, the Debian package that brings it, and folders (patterns) to look in before the PATH."""

    name: str
    package: str
    folders: tuple[str, ...] = ()


#: What the embedded cluster runs, and what builds its images.
CLUSTER = (
    Program("containerd", "containerd"),
    Program("ctr", "containerd"),
    Program("runc", "runc"),
    Program("loopback", "containernetworking-plugins", ("/usr/lib/cni",)),  # iproute2 has a `bridge`, too
    Program("buildah", "buildah"),
    Program("netavark", "netavark", ("/usr/lib/podman",)),  # from Debian 13 on buildah does nothing without it
    Program("debootstrap", "debootstrap"),
    Program("debian-archive-keyring.gpg", "debian-archive-keyring", ("/usr/share/keyrings",)),
    Program("iptables", "iptables"),
    Program("nft", "nftables"),
    Program("ip", "iproute2"),
    Program("sysctl", "procps"),
    Program("gcc", "gcc"),
    Program("unistd.h", "libc6-dev", ("/usr/include",)),
    Program("setsid", "util-linux"),
    Program("mount", "mount"),
    Program("ca-certificates.crt", "ca-certificates", ("/etc/ssl/certs",)),
)
#: What tests start as processes of this machine.
SERVERS = (
    Program("redis-server", "redis-server"),
    Program("redis-cli", "redis-tools"),
    Program("initdb", "postgresql", ("/usr/lib/postgresql/*/bin",)),
    Program("prometheus", "prometheus"),
    Program("node", "nodejs"),
    Program("npm", "npm"),
    Program("libfaketimeMT.so.1", "libfaketime", ("/usr/lib/*/faketime",)),
)
#: What `make kafka` needs beside them.
JAVA = (Program("java", "default-jre-headless"),)
_BY_NAME = {program.name: program for program in (*CLUSTER, *SERVERS, *JAVA)}


def find(name: str) -> Path:
    """Return where a program of the table lies. Raises MissingError, which names its package, and KeyError."""
    program = _BY_NAME[name]
    if (found := _look(program)) is None:
        raise MissingError(f"{name} is not installed (Debian package {program.package})")
    return found


def missing(programs: Iterable[Program]) -> list[str]:
    """The packages of those programs that are not on this machine."""
    return sorted({program.package for program in programs if _look(program) is None})


def check(programs: Iterable[Program]) -> None:
    """Raise MissingError with the packages of those programs that are not on this machine."""
    if packages := missing(programs):
        raise MissingError(f"Debian packages are not installed: {', '.join(packages)}")


def _look(program: Program) -> Path | None:
    for pattern in program.folders:
        if found := sorted(Path("/").glob(f"{pattern.lstrip('/')}/{program.name}")):
            return found[-1]
    on_path = shutil.which(program.name)
    return None if on_path is None else Path(on_path)
