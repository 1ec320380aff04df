"""The paths of the local cluster: one cache outside the source tree, one run directory inside the cache."""

from __future__ import annotations

import os
from pathlib import Path

SOCKET_PATH_LIMIT = 100  # a Unix socket's path holds 107 bytes; some daemons append a suffix to theirs


def cache() -> Path:
    """The cache of everything built or fetched: `$ACTIVITYPOOL_CACHE`, else `~/.cache/activitypool`."""
    chosen = os.environ.get("ACTIVITYPOOL_CACHE")
    return Path(chosen).absolute() if chosen else Path.home() / ".cache" / "activitypool"


def cluster() -> Path:
    """The local cluster's part of the cache."""
    return cache() / "cluster"


def run() -> Path:
    """State of the running cluster: certificates, etcd data, logs, sockets, audit log. `down` removes it."""
    return cluster() / "run"


def kubeconfig() -> Path:
    """The administrator's kubeconfig of the running cluster."""
    return cluster() / "kubeconfig"


def record() -> Path:
    """The description of the running cluster that `current()` reads."""
    return cluster() / "current.json"


def logs() -> Path:
    """Logs of the daemons, one file each."""
    return run() / "logs"


def pki() -> Path:
    """Certificates, keys and kubeconfigs of the components."""
    return run() / "pki"


def container_store() -> Path:
    """containerd's root: unpacked images are kept by `down`, so that the next boot is faster."""
    return cluster() / "containerd"


def containerd_socket() -> Path:
    """containerd's own socket; the machine's containerd is left alone."""
    return run() / "containerd.sock"


def check_socket_paths() -> None:
    """Raise ValueError when the cache's path is too long for the Unix sockets made below it."""
    longest = run() / "kubelet" / "pod-resources" / "kubelet.sock"
    if len(str(longest)) > SOCKET_PATH_LIMIT:
        raise ValueError(
            f"ACTIVITYPOOL_CACHE={cache()} is too long: sockets below it would have {len(str(longest))} characters, "
            f"the limit is {SOCKET_PATH_LIMIT}; choose a shorter path"
        )
