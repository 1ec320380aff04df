"""A real Kubernetes cluster on this machine, for the demo and for tests.

`up()` gives kind where a Docker engine answers, else `embedded` (Kubernetes' own binaries as daemons)
on Linux as root. `python -m tests.cluster` is the same on the command line.
"""

from __future__ import annotations

from tests.cluster.cluster import Cluster
from tests.cluster.lifecycle import current, down, find_image, load_image, up
from tests.cluster.shell import ClusterError, MissingError

__all__ = ["Cluster", "ClusterError", "MissingError", "current", "down", "find_image", "load_image", "up"]
