"""The installed operator: a test's actions on it, and its history since."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.cluster import catalogue, find_image, load_image
from tests.cluster.shell import run
from tests.e2e.harness import ROOT, SYSTEM, ClusterHarness
from tests.e2e.operator_days import node
from tests.e2e.operator_days.audit import Audit
from tests.e2e.operator_days.view import NAME, OperatorView
from tests.e2e.timeline import Timeline

PODS = ("pods", "-l", f"app.kubernetes.io/name={NAME}")


@dataclass
class Operator:
    """The operator that all pools share.

    `audit` began before the first test; `measured` collects sentences for the end of the run. `mark` is where in the
    timeline the test last acted on the operator: by default a test asks about the time since then.
    """

    harness: ClusterHarness
    audit: Audit
    measured: list[str]
    mark: int = 0

    @property
    def timeline(self) -> Timeline:
        """Everything that happened in the operator's namespace, and to the nodes."""
        return self.harness.timeline(SYSTEM)

    def act(self) -> None:
        """Move the mark to now: the test is about to do something to the operator."""
        self.mark = self.timeline.catch_up()

    @property
    def now(self) -> OperatorView:
        """The operator as the API server has it now."""
        mark = self.timeline.catch_up()
        return OperatorView(self.timeline.since(mark)[0])

    def since(self, mark: int) -> list[OperatorView]:
        """Return the operator at every moment since a mark, up to now."""
        self.timeline.catch_up()
        return [OperatorView(moment) for moment in self.timeline.since(mark)]

    def eventually(
        self, what: str, holds: Callable[[OperatorView], object], *, since: int | None = None
    ) -> OperatorView:
        """Return the operator at the first moment since a mark (default: the last act) of which `holds` is true."""
        begin = self.mark if since is None else since
        moment, _ = self.timeline.eventually(what, lambda moment: holds(OperatorView(moment)), since=begin)
        return OperatorView(moment)

    def settle(self) -> OperatorView:
        """Wait until two replicas are ready and one of them leads, now or later."""
        self.act()
        return self.eventually("the operator has two ready replicas and a leader", lambda view: view.settled)

    def await_takeover(self, former: str, since: float, how: str) -> OperatorView:
        """Wait until a process other than `former` holds the Lease, and record the seconds after `since`.

        The process may be in the same pod: a killed container restarts within seconds, and competes.
        """
        taken = self.eventually(f"another process than {former} leads", lambda view: view.holder not in {"", former})
        self.measured.append(f"{how}: led again after {taken.acquired_at - since:.1f} s")
        return taken

    def signal(self, replica: str, name: str) -> float:
        """Send a signal (KILL, STOP, CONT) to a replica's process; return the time in Unix seconds."""
        self.act()
        uid = self.now.replicas[replica].uid
        at = time.time()
        assert node.signal(self.harness.cluster, [uid], NAME, name) == 1, f"{replica} runs no process {NAME}"
        return at

    def kubectl(self, *words: str) -> str:
        """Change something in the operator's namespace with kubectl; returns its output."""
        self.act()
        return self.harness.kubectl("-n", SYSTEM, *words)

    def upgrade(self, **values: object) -> None:
        """Upgrade the release to these chart values, keeping the others, and wait until it has rolled out."""
        self.act()
        given = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
        self.helm("upgrade", NAME, str(ROOT / "charts" / NAME), "--reuse-values", *given, "--wait", "--timeout=400s")

    def release(self) -> str:
        """Return the number of the installed release."""
        return str(json.loads(self.helm("list", "--output", "json"))[0]["revision"])

    def helm(self, *words: str) -> str:
        """Run Helm on the operator's namespace; returns its output."""
        cluster = self.harness.cluster
        return run([cluster.helm, f"--kubeconfig={cluster.kubeconfig}", *words, "-n", SYSTEM], timeout_seconds=420)


def next_version() -> str:
    """Load an operator that renders worker pods differently from the present one; return its tag."""
    load_image(find_image(catalogue.next_operator()))
    return "next"
