"""Whether this machine can have a local cluster, and of which kind."""

from __future__ import annotations

import functools
import os
import shutil
import sys

from tests.cluster.shell import succeeds


@functools.cache
def docker_answers() -> bool:
    """Whether a Docker engine answers `docker info`; asked once per process."""
    return shutil.which("docker") is not None and succeeds(["docker", "info"])


def why_not_embedded() -> str | None:
    """Why this machine cannot run the embedded cluster; None if it can."""
    if sys.platform != "linux":
        return f"this machine runs {sys.platform}, the embedded cluster needs Linux"
    if os.geteuid() != 0:
        return "the embedded cluster needs root (it makes a bridge, mounts and cgroups)"
    return None
