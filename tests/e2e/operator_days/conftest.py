"""One operator and twenty busy workers for all tests; the measurements are printed at the end."""

import os
import uuid
from collections.abc import Iterator

import pytest

from tests.cluster import probe
from tests.e2e.harness import SYSTEM, ClusterHarness
from tests.e2e.operator_days.audit import Audit
from tests.e2e.operator_days.busy_workers import BusyWorkers
from tests.e2e.operator_days.operator import Operator
from tests.e2e.operator_days.view import NAME

#: These tests change the shared operator, so a run with several processes leaves them out.
collect_ignore_glob = ["test_*.py"] if os.environ.get("PYTEST_XDIST_WORKER") else []
measured: list[str] = []


@pytest.fixture(scope="session")
def installed(harness: ClusterHarness) -> Iterator[Operator]:
    """The installed operator; with KEEP=1 its release is rolled back to the former one at the end."""
    found = Operator(harness, Audit(harness.cluster.audit_log), measured)
    before = found.release()
    yield found
    if os.environ.get("KEEP") and found.release() != before:
        found.helm("rollback", NAME, before)
    harness.forget(SYSTEM)


@pytest.fixture
def operator(installed: Operator) -> Operator:
    """The installed operator, with two ready replicas and a leader."""
    installed.settle()
    return installed


@pytest.fixture(scope="session")
def busy_workers(harness: ClusterHarness, installed: Operator) -> Iterator[BusyWorkers]:
    """Twenty workers that start when a test first asks for them, and stay busy through all later tests."""
    with probe.namespace(harness.cluster, f"e2e-busy-workers-{uuid.uuid4().hex[:6]}") as name:
        yield BusyWorkers(harness, name)
        harness.forget(name)
        # After a failed test their tasks still run, and a stopping worker would wait for its task.
        harness.kubectl("delete", "pods", "--all", "-n", name, "--force", "--grace-period=0", "--wait=false")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how long the pools had no leader."""
    for line in measured:
        terminalreporter.write_line(f"operator days: {line}")
