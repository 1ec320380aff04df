"""The cluster keeps its state through crashes, and `down` restores the machine's state.

These tests stop and start the machine's cluster, so they run only when asked: `ACTIVITYPOOL_CLUSTER_MAY_RESTART=1
pytest tests/cluster`.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster import (
    ClusterError,
    current,
    down,
    embedded,
    go_builds,
    images,
    machine,
    machine_state,
    network,
    paths,
    probe,
    processes,
    requirements,
    up,
)
from tests.cluster.machine_state import MachineState
from tests.eventually import eventually_sync

pytestmark = [
    pytest.mark.timeout(1800),  # the first run on a machine builds Kubernetes
    pytest.mark.skipif(
        os.environ.get("ACTIVITYPOOL_CLUSTER_MAY_RESTART") != "1",
        reason="restarts this machine's cluster: set ACTIVITYPOOL_CLUSTER_MAY_RESTART=1",
    ),
    pytest.mark.skipif(
        requirements.docker_answers() or requirements.why_not_embedded() is not None,
        reason=f"no embedded cluster here: {requirements.why_not_embedded() or 'Docker answers'}",
    ),
]
NAMESPACE = "test-crash"

# Settings that the cluster changes, here with values that it would not choose.
UNLIKELY = {"net/ipv4/ip_forward": "0", "kernel/panic": "7"}


@pytest.fixture(scope="module")
def before() -> Iterator[MachineState]:
    """The machine without a cluster, with everything built; the cluster runs after these tests."""
    up()
    down()
    with machine.sysctls(UNLIKELY):
        yield machine_state.take()
        down()
    up()


@pytest.fixture
def web(before: MachineState) -> Iterator[str]:
    """A namespace with a Ready Deployment; its cluster runs."""
    cluster = up()
    with probe.namespace(cluster, NAMESPACE) as name:
        probe.deploy(cluster, name)
        yield name


def _uid(namespace: str) -> str:
    return probe.kubectl(up(), "get", "namespace", namespace, "--output=jsonpath={.metadata.uid}")


def _kill(*names: str) -> None:
    for name in names:
        os.kill(processes.pid_of(name), signal.SIGKILL)
    for name in names:
        eventually_sync(f"{name} is dead", partial(processes.died, name), seconds=5)


def _built() -> dict[Path, int]:
    """Return the modification times of what takes minutes to build."""
    paths = [images.pause_archive(), *go_builds.find(go_builds.EMBEDDED).values()]
    return {path: path.stat().st_mtime_ns for path in paths}


def test_warm_boot_builds_nothing_and_its_node_is_ready(before: MachineState) -> None:
    """The seconds are printed and not asserted: less than forty on an idle machine, unpredictable on a busy one."""
    built = _built()

    cluster = up()

    assert _built() == built
    assert current() == cluster
    probe.kubectl(cluster, "wait", "nodes", "--all", "--for=condition=Ready", "--timeout=60s")


def test_up_on_a_running_cluster_changes_nothing(web: str) -> None:
    """The daemons have the same process ids, and the cluster answers as before."""
    daemons = {name: processes.pid_of(name) for name in embedded.DAEMONS}

    assert up() == current()
    assert {name: processes.pid_of(name) for name in embedded.DAEMONS} == daemons


def test_up_repairs_a_node_whose_kubelet_and_containerd_were_killed(web: str) -> None:
    """Objects and running pods survive; new pods can be started."""
    uid = _uid(web)

    _kill("kubelet", "containerd")
    assert current() is None
    cluster = up()

    assert _uid(web) == uid
    probe.kubectl(cluster, "--namespace", web, "scale", f"deployment/{probe.NAME}", "--replicas=3")
    probe.wait_ready(cluster, web)


def test_up_repairs_a_cluster_whose_every_daemon_was_killed(web: str) -> None:
    """etcd's data is kept, pods are run again, Services answer."""
    uid = _uid(web)

    _kill(*embedded.DAEMONS)
    cluster = up()

    assert _uid(web) == uid
    probe.kubectl(cluster, "--namespace", web, "rollout", "restart", f"deployment/{probe.NAME}")
    probe.wait_ready(cluster, web)
    probe.wait_served(cluster, web, f"http://{probe.NAME}/hostname")


def test_cluster_of_another_cache_is_neither_stopped_nor_joined(
    web: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One machine has one cluster, and its cache decides who may use it."""
    with monkeypatch.context() as other:
        other.setattr(paths, "cache", tmp_path_factory.getbasetemp)
        with pytest.raises(ClusterError, match="a cluster of another cache runs on this machine"):
            embedded.down()

    assert current() is not None


def test_down_restores_the_machines_state(before: MachineState, web: str) -> None:
    """Processes, mounts, links, routes, packet filter, sysctls, cgroups: the snapshots are equal, field by field."""
    _kill("containerd")  # the hard case: the shims have lost their parent

    down()

    after = machine_state.take()
    for field in vars(before):
        assert getattr(after, field) == getattr(before, field), field
    # Equal snapshots are not enough: a trace left by an earlier `down` would be in both.
    assert (after.our_processes, after.cgroups) == ([], [])
    rules = [rule for family in after.packet_filter.values() for rule in family]
    everything = "\n".join([*after.links, *after.mounts, *after.routes, *rules])
    assert not re.search(f"KUBE-|CNI-|veth|{network.BRIDGE}|{paths.run()}", everything)
    assert not paths.run().exists()
    assert current() is None


def test_down_without_a_cluster_does_nothing(before: MachineState) -> None:
    """A second `down` is no error."""
    down()
    down()

    assert machine_state.take() == before
