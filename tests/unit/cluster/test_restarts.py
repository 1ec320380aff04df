"""Daemons that die while the cluster boots are started again, a few times and with pauses."""

import pytest

from tests.cluster import embedded, processes
from tests.cluster.embedded import RESTART_SECONDS, RESTARTS, Restarts
from tests.cluster.processes import Daemon
from tests.cluster.shell import ClusterError


class Machine:
    """Daemons that are dead until they are started, and then die again `deaths` times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **deaths: int) -> None:
        self.now = 100.0
        self.deaths = deaths
        self.starts: list[tuple[str, float]] = []
        self.restarts = Restarts([Daemon("kubelet", ()), Daemon("kube-proxy", ())], lambda: self.now)
        monkeypatch.setattr(processes, "died", lambda name: self.deaths.get(name, 0) > 0)
        monkeypatch.setattr(processes, "start", self._start)

    def _start(self, daemon: Daemon) -> bool:
        self.starts.append((daemon.name, self.now))
        self.deaths[daemon.name] -= 1
        return True

    def look(self) -> bool:
        """Look once, after a tenth of a second: whether no daemon is dead."""
        self.now += 0.1
        return not any(self.deaths.values())

    def wait(self) -> None:
        embedded._until(self.look, "the node is ready", self.restarts)


def test_daemons_that_died_are_started_again_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "wait_until", _looks)
    machine = Machine(monkeypatch, kubelet=3, **{"kube-proxy": 1})

    machine.wait()

    assert [name for name, _ in machine.starts] == ["kubelet", "kube-proxy", "kubelet", "kubelet"]
    first, second, third = (at for name, at in machine.starts if name == "kubelet")
    assert min(second - first, third - second) >= RESTART_SECONDS


def test_daemon_that_dies_every_time_ends_the_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "wait_until", _looks)
    machine = Machine(monkeypatch, kubelet=1000)

    with pytest.raises(ClusterError, match="kubelet died"):
        machine.wait()
    assert len(machine.starts) == RESTARTS


def test_dead_daemon_that_nothing_starts_again_ends_the_wait_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "wait_until", _looks)
    machine = Machine(monkeypatch, etcd=1)

    with pytest.raises(ClusterError, match="etcd died"):
        machine.wait()
    assert machine.starts == []


def _looks(holds: object, what: str, *, timeout_seconds: float) -> None:
    """Look until it holds, without a pause: the machine's clock goes on by itself."""
    assert callable(holds)
    assert any(holds() for _ in range(1000)), what
