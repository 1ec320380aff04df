"""One operator, one crew of busy workers for all bad days; what was measured is told at the end."""

import os
import uuid
from collections.abc import Iterator

import pytest

from tests.cluster import probe
from tests.e2e.operator_days.audit import Audit
from tests.e2e.operator_days.crew import Crew
from tests.e2e.operator_days.operator import NAME, Operator
from tests.e2e.stage import Stage

#: Of no use beside others: where several processes test at once, these are left to a run of their own.
collect_ignore_glob = ["test_*.py"] if os.environ.get("PYTEST_XDIST_WORKER") else []
measured: list[str] = []


@pytest.fixture(scope="session")
def operator(stage: Stage) -> Iterator[Operator]:
    """The installed operator; put back as the other tests know it when it is to stay."""
    found = Operator(stage, Audit(stage.cluster.audit_log), measured)
    found.settle()
    before = found.release()
    yield found
    if os.environ.get("KEEP") and found.release() != before:
        found.helm("rollback", NAME, before)


@pytest.fixture(scope="session")
def crew(stage: Stage, operator: Operator) -> Iterator[Crew]:
    """Twenty workers, called when a test first asks for them, busy through all that follows."""
    with probe.namespace(stage.cluster, f"e2e-crew-{uuid.uuid4().hex[:6]}") as name:
        yield Crew(stage, name)
        # A test that failed leaves their tasks as they are, and a worker that stops would await them.
        stage.kubectl("delete", "pods", "--all", "-n", name, "--force", "--grace-period=0", "--wait=false")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how long the pools had no leader."""
    for line in measured:
        terminalreporter.write_line(f"operator days: {line}")
