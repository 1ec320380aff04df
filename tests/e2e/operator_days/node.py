"""Works without a kubelet: signals from the node to processes in pods, and files that are put into pods.

SIGKILL and SIGSTOP from inside a container do not reach its first process.
"""

import os
import signal as signals
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tests.cluster import Cluster, processes
from tests.cluster.kind import NAME
from tests.cluster.shell import run
from tests.e2e.handler import GATE

# One pass over all control groups, so that several processes are hit within milliseconds of each other. The pod's own
# pause process is in the same group, so the program's name is compared.
SCRIPT = """\
for file in $(grep -Els 'pod({uids})' /proc/[0-9]*/cgroup); do
  process=${{file%/cgroup}}
  if grep -aqs '{program}' $process/cmdline; then {do} && echo hit; fi
done
"""


def signal(cluster: Cluster, uids: Iterable[str], program: str, name: str) -> int:
    """Send a signal (KILL, STOP, CONT) to every process of these pods that runs `program`; return how many."""
    return _each(cluster, uids, program, f"kill -s {name} ${{process#/proc/}}")


def open_gates(cluster: Cluster, uids: Iterable[str]) -> None:
    """Let the gated tasks of these pods' workers end, as `Pool.let_go` does."""
    assert _each(cluster, uids, "activity-worker", f"touch $process/root{GATE}"), "no process of a worker was found"


@contextmanager
def hung_kubelet(cluster: Cluster) -> Iterator[None]:
    """Stop the kubelet, and only the kubelet: containers run on."""
    _signal_kubelet(cluster, signals.SIGSTOP)
    try:
        yield
    finally:
        _signal_kubelet(cluster, signals.SIGCONT)


def _signal_kubelet(cluster: Cluster, number: signals.Signals) -> None:
    if cluster.kind == "kind":
        script = f"kill -s {number.name.removeprefix('SIG')} $(pidof kubelet)"
        run(["docker", "exec", f"{NAME}-control-plane", "sh", "-c", script], timeout_seconds=30)
    else:
        os.kill(processes.pid_of("kubelet"), number)


def _each(cluster: Cluster, uids: Iterable[str], program: str, do: str) -> int:
    either = "|".join(uid.replace("-", "[-_]") for uid in uids)
    script = SCRIPT.format(uids=either, program=program, do=do)
    here = ["docker", "exec", f"{NAME}-control-plane"] if cluster.kind == "kind" else []
    return len(run([*here, "sh", "-c", script], timeout_seconds=30).split())
