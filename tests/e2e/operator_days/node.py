"""Signals from the node to processes in pods: from inside, SIGKILL and SIGSTOP spare a container's first process."""

from collections.abc import Iterable

from tests.cluster import Cluster
from tests.cluster.kind import NAME
from tests.cluster.shell import run

# One look at all control groups, so that several processes are hit within milliseconds of each other. The pod's own
# pause process is in the same group, hence the name of the program.
SCRIPT = """\
for file in $(grep -Els 'pod({uids})' /proc/[0-9]*/cgroup); do
  process=${{file%/cgroup}}
  if grep -aqs '{program}' $process/cmdline; then kill -s {signal} ${{process#/proc/}} && echo hit; fi
done
"""


def signal(cluster: Cluster, uids: Iterable[str], program: str, name: str) -> int:
    """Send a signal (KILL, STOP, CONT) to every process of these pods that runs `program`; returns how many it hit."""
    either = "|".join(uid.replace("-", "[-_]") for uid in uids)
    script = SCRIPT.format(uids=either, program=program, signal=name)
    here = ["docker", "exec", f"{NAME}-control-plane"] if cluster.kind == "kind" else []
    return len(run([*here, "sh", "-c", script], timeout_seconds=30).split())
