"""Ways to end a worker's pod, or a process in it."""

import contextlib
import json

from tests.cluster.shell import ClusterError
from tests.e2e.pool import BasePool

#: Run in a worker's container: kill the processes whose command line has the first word and not the second. At least
#: one must exist.
_KILL = """
import os, pathlib, signal, sys
wanted, other = (word.encode() for word in sys.argv[1:])
killed = 0
for process in pathlib.Path("/proc").iterdir():
    if process.name.isdigit() and process.name not in ("1", str(os.getpid())):
        line = (process / "cmdline").read_bytes()
        if wanted in line and other not in line:
            os.kill(int(process.name), signal.SIGKILL)
            killed += 1
sys.exit(killed == 0)
"""
_SUPERVISOR, _HANDLER = "bin/activity-worker", "subprocess/bootstrap.py"


def kill_handler(pool: BasePool, pod: str) -> None:
    """Send SIGKILL to the process that runs the handler."""
    _kill(pool, pod, _HANDLER, "-c")


def kill_supervisor(pool: BasePool, pod: str) -> None:
    """Send SIGKILL to the process that polls, heartbeats and reports, which is not the container's first process."""
    with contextlib.suppress(ClusterError):  # the container ends with it, and usually this command with the container
        _kill(pool, pod, _SUPERVISOR, "dumb-init")


def delete(pool: BasePool, pod: str) -> None:
    """Delete the pod with its own grace period."""
    pool.kubectl("delete", "pod", pod, "--wait=false")


def delete_at_once(pool: BasePool, pod: str) -> None:
    """Delete the pod without a grace period."""
    pool.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")


def evict(pool: BasePool, pod: str) -> None:
    """Evict the pod as `kubectl drain` does, through the API that respects disruption budgets."""
    path = f"/api/v1/namespaces/{pool.namespace}/pods/{pod}/eviction"
    name = {"name": pod, "namespace": pool.namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": name}
    pool.harness.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))


def _kill(pool: BasePool, pod: str, wanted: str, other: str) -> None:
    pool.kubectl("exec", pod, "-c", "worker", "--", "python", "-I", "-c", _KILL, wanted, other)
