"""The embedded cluster: Kubernetes' own binaries as daemons of this machine. Linux, root, no Docker."""

from __future__ import annotations

import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests import packages
from tests.cluster import (
    cgroups,
    control_plane,
    dns,
    go_builds,
    images,
    machine,
    network,
    node,
    paths,
    processes,
)
from tests.cluster.cluster import Cluster
from tests.cluster.control_plane import NODE, Identities
from tests.cluster.processes import Daemon
from tests.cluster.progress import say, step
from tests.cluster.shell import ClusterError, succeeds, wait_until

BOOT_SECONDS = 90.0
#: A daemon that dies during the boot is started again, as by any init system: containerd answers before its CRI does,
#: and the kubelet ends without a CRI. RESTARTS bounds the number of starts, RESTART_SECONDS is the pause between two.
RESTARTS = 10
RESTART_SECONDS = 2.0
DAEMONS = (
    "etcd",
    "containerd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "coredns",
)


class Restarts:
    """Starts daemons again that died, RESTARTS times each, with RESTART_SECONDS between two starts."""

    def __init__(self, daemons: Iterable[Daemon], clock: Callable[[], float] = time.monotonic) -> None:
        self._daemons = {daemon.name: daemon for daemon in daemons}
        self._clock = clock
        self._starts: dict[str, list[float]] = {}

    def again(self, name: str) -> bool:
        """Start the dead daemon as soon as it may be; return whether there is hope for it."""
        starts = self._starts.setdefault(name, [])
        if name not in self._daemons or len(starts) == RESTARTS:
            return False
        if not starts or self._clock() >= starts[-1] + RESTART_SECONDS:
            starts.append(self._clock())
            say(f"{name} died: starting it again")
            processes.start(self._daemons[name])
        return True


def up() -> Cluster:
    """Boot the cluster, repair it after a crash, or verify that it is well; return it Ready.

    Installs and builds nothing. Raises MissingError when something from `make prepare` is missing, and ClusterError
    with the failing daemon's last lines when the cluster does not come up.
    """
    paths.check_socket_paths()
    packages.check(packages.CLUSTER)
    binaries = go_builds.find(go_builds.EMBEDDED)
    cluster = _describe(binaries)
    running = [name for name in DAEMONS if processes.is_running(name)]
    if len(running) == len(DAEMONS) and succeeds(_kubectl(cluster, "get", "--raw", "/readyz")):
        _wait_until_well(cluster)
        say("the cluster is up already, and well")
        return cluster
    leftover = bool(running) or (paths.run() / "etcd").exists()
    if leftover:
        say(f"repairing: {len(running)} of {len(DAEMONS)} daemons still run")
    try:
        _boot(binaries, cluster)
    except ClusterError as failed:
        if not leftover:
            raise
        say(f"the repair failed ({str(failed).splitlines()[0]}): starting afresh")
        down()
        _boot(binaries, cluster)
    return cluster


def down() -> None:
    """Stop the cluster's processes and restore the machine's state from before `up`. Repeatable.

    Raises ClusterError, and stops nothing, when the running cluster belongs to another cache.
    """
    _check_it_is_ours()
    with step("stopping the cluster's processes"):
        # The kubelet first, so that it restarts nothing; containerd gets a grace period, because its store is kept.
        processes.stop("kubelet", grace_seconds=1)
        cgroups.kill(f"{cgroups.NAME}/kubepods")
        processes.stop("containerd")
        cgroups.kill(cgroups.NAME)
    with step("restoring mounts, links, packet filter, sysctls and cgroups"):
        machine.restore(network.BRIDGE, network.NETWORK)
        cgroups.remove()
        _delete_state()


def is_well(cluster: Cluster) -> bool:
    """Whether every daemon runs and the API server says it is ready."""
    if not all(processes.is_running(name) for name in DAEMONS):
        return False
    return succeeds(_kubectl(cluster, "get", "--raw", "/readyz"))


def _boot(binaries: Mapping[str, Path], cluster: Cluster) -> None:
    _check_it_is_ours()
    pause = images.find_pause()
    processes.forget_dead(DAEMONS)
    machine.remember()
    cgroups.prepare()
    network.up()
    who = control_plane.identities()
    fresh = not (paths.run() / "etcd").exists()
    with _explained("etcd", "containerd", "kube-apiserver"), step("etcd, kube-apiserver, containerd"):
        _start(control_plane.etcd(binaries), control_plane.api_server(binaries, who), node.containerd())
        _until(lambda: succeeds(["ctr", "-a", paths.containerd_socket(), "version"]), "containerd answers")
        images.prepare_store(pause, forget_containers=fresh)
        _until(lambda: control_plane.is_ready(who), "kube-apiserver is ready")
    with _explained("kube-controller-manager", "kubelet", "kube-proxy", "coredns"), step("controllers, node, DNS"):
        _wait_until_well(cluster, _start_the_rest(binaries, who, cluster))


def _start_the_rest(binaries: Mapping[str, Path], who: Identities, cluster: Cluster) -> Restarts:
    """Start the daemons that need the API server; return what starts them again."""
    daemons = [
        control_plane.controller_manager(binaries, who),
        control_plane.scheduler(binaries),
        node.kubelet(binaries, who),
        node.kube_proxy(binaries),
    ]
    _start(*daemons)
    # After it is ready, the API server refuses a given ClusterIP for a moment: its allocator does not know the range
    # yet.
    apply = _kubectl(cluster, "apply", "--server-side", "--force-conflicts", "-f", "-")
    _until(lambda: succeeds(apply, stdin=dns.MANIFEST), "the DNS Service can be made", Restarts(daemons))
    daemons.append(dns.coredns(binaries))
    _start(daemons[-1])
    return Restarts(daemons)


def _wait_until_well(cluster: Cluster, restarts: Restarts | None = None) -> None:
    _until(lambda: succeeds(_kubectl(cluster, "get", "node", NODE)), f"node {NODE} exists", restarts)
    wait = _kubectl(cluster, "wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=1s")
    _until(lambda: succeeds(wait), f"node {NODE} is ready", restarts)
    account = _kubectl(cluster, "get", "serviceaccount", "default", "--namespace", "default")
    _until(lambda: succeeds(account), "the default ServiceAccount exists", restarts)
    # After a crash the node's condition is outdated, so the kubelet itself is asked.
    _until(lambda: _answers("http://127.0.0.1:10248/healthz"), "the kubelet is healthy", restarts)
    _until(lambda: _answers("http://127.0.0.1:18181/ready"), "CoreDNS is ready", restarts)
    _until(lambda: _answers(f"http://{network.HOST}:10256/healthz"), "kube-proxy is healthy", restarts)


def _start(*daemons: Daemon) -> None:
    for daemon in daemons:
        processes.start(daemon)


@contextmanager
def _explained(*names: str) -> Iterator[None]:
    """Add the last lines of the daemons that died to an error raised inside; of all daemons when none died."""
    try:
        yield
    except ClusterError as failed:
        dead = [name for name in names if not processes.is_running(name)] or list(names)
        tails = "\n".join(f"--- {name}\n{processes.last_lines(name)}" for name in dead)
        raise ClusterError(f"{failed}\n{tails}") from failed


def _describe(binaries: Mapping[str, Path]) -> Cluster:
    return Cluster(
        kubeconfig=paths.kubeconfig(),
        audit_log=control_plane.audit_log(),
        kubectl=binaries["kubectl"],
        helm=binaries["helm"],
        kind="embedded",
        host_ip=network.HOST,
    )


def _kubectl(cluster: Cluster, *words: str) -> list[str | Path]:
    return [cluster.kubectl, f"--kubeconfig={cluster.kubeconfig}", *words]


def _answers(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _until(holds: Callable[[], bool], what: str, restarts: Restarts | None = None) -> None:
    """Wait for `holds`; stop early when a recorded daemon has died that `restarts` does not start again."""

    def holds_or_hopeless() -> bool:
        dead = [name for name in DAEMONS if processes.died(name)]
        if dead and restarts is not None:
            dead = [name for name in dead if not restarts.again(name)]
        if dead:
            raise ClusterError(f"waiting until {what}: {', '.join(dead)} died")
        return holds()

    wait_until(holds_or_hopeless, what, timeout_seconds=BOOT_SECONDS)


def _check_it_is_ours() -> None:
    """Raise ClusterError when the running cluster is another cache's: addresses are fixed, so there can be only one."""
    daemons = [processes.command_line(pid) for pid in cgroups.processes(cgroups.DAEMONS)]
    if daemons and not any(str(paths.cluster()) in words for words in daemons):
        raise ClusterError(
            f"a cluster of another cache runs on this machine (`{daemons[0][:80]}`): take it down with that "
            f"ACTIVITYPOOL_CACHE first; this one's is {paths.cache()}"
        )


def _delete_state() -> None:
    machine.check_root_is_ours(paths.run())
    # Renamed first, so that a `down` that is killed here leaves no incomplete state for the next `up`.
    gone = paths.run().with_name("run-deleted")
    shutil.rmtree(gone, ignore_errors=True)
    if paths.run().exists():
        paths.run().rename(gone)
    for folder in (gone, *images.transient_folders()):
        shutil.rmtree(folder, ignore_errors=True)
    paths.kubeconfig().unlink(missing_ok=True)
