"""All suites in one run, one cluster for those that need it, and a table of the time each took.

`python -m tests.suites [SUITE ...]` runs the named ones; the exit code is that of the worst. What failed is said again
below the table: hours of output lie above it.
"""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests import outcome
from tests.outcome import Outcome


@dataclass(frozen=True)
class Suite:
    """One call of pytest; `cluster`: it needs the local cluster; `keeps`: it leaves the operator to the next one."""

    name: str
    arguments: tuple[str, ...]
    cluster: bool = False
    keeps: bool = False


@dataclass(frozen=True)
class Row:
    """One line of the table: a suite, or a step between suites; `code` is how its process ended."""

    name: str
    seconds: float
    code: int
    outcome: Outcome = field(default_factory=Outcome)


SUITES = (
    Suite("unit", ("tests/unit",)),
    Suite("conformance", ("tests/conformance",)),
    Suite("processes", ("tests/integration/worker", "tests/integration/reports")),
    Suite("steps", ("tests/integration/steps", "-n", "2")),
    # Each test has servers of its own, and waits for them more than it works.
    Suite("redis", ("tests/integration/redis", "tests/integration/flows", "-n", "4")),
    Suite("backlog", ("tests/integration/backlog", "-n", "4")),
    # Control planes of its own, a run on each: most of the time Leases run out and windows pass.
    Suite("faults", ("tests/faults",)),
    Suite("hostile", ("tests/hostile",)),
    Suite("cluster", ("tests/integration/test_local_cluster.py", "tests/integration/test_emulators.py"), cluster=True),
    # First among those that bring the CRD: Helm takes over none that it did not make.
    Suite("e2e", ("tests/e2e", "-n", "4"), cluster=True, keeps=True),
    # Alone: they kill and replace the operator that the others share.
    Suite("operator-days", ("tests/e2e/operator_days",), cluster=True),
    Suite("chart", ("tests/integration/chart",), cluster=True),
    Suite("crd", ("tests/integration/crd",), cluster=True),
    Suite("operator", ("tests/integration/operator",), cluster=True),
    Suite("crash", ("tests/cluster",), cluster=True),
)


def main() -> int:
    """Run the suites in order, print the table, stop the cluster if this run started it."""
    unknown = sorted(set(sys.argv[1:]) - {suite.name for suite in SUITES})
    if unknown:
        print(f"no such suite: {', '.join(unknown)}; there are {', '.join(suite.name for suite in SUITES)}")
        return 2
    chosen = [suite for suite in SUITES if not sys.argv[1:] or suite.name in sys.argv[1:]]
    rows: list[Row] = []
    up = False
    try:
        for suite in chosen:
            if suite.cluster and not up:
                # A cluster that somebody left may hold their objects: the suites begin on an empty one.
                rows.append(_step("cluster down", "-m", "tests.cluster", "down"))
                rows.append(_step("cluster up", "-m", "tests.cluster", "up"))
                up = rows[-1].code == 0
                if not up:
                    break
            rows.append(_run(suite))
    finally:
        if up:
            rows.append(_step("cluster down", "-m", "tests.cluster", "down"))
    _tell(rows)
    return max((row.code for row in rows), default=0)


def _tell(rows: list[Row]) -> None:
    print(f"\n{'suite':<14}{'seconds':>9}{'tests':>7}{'skipped':>9}{'failed':>8}  result")
    for row in rows:
        counts = f"{row.outcome.tests:>7}{row.outcome.skipped:>9}{len(row.outcome.failures):>8}"
        print(
            f"{row.name:<14}{row.seconds:>9.1f}{counts if row.outcome.tests else '':>24}"
            f"  {'ok' if row.code == 0 else f'FAILED ({row.code})'}"
        )
    for row in rows:
        for failure in row.outcome.failures:
            print(f"\n{row.name}: {failure.name}\n{failure.text}")


def _run(suite: Suite) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        row = _step(suite.name, "-m", "pytest", *suite.arguments, f"--junitxml={report}", keep=suite.keeps)
        return replace(row, outcome=outcome.read(report))


def _step(name: str, *arguments: str, keep: bool = False) -> Row:
    print(f"\n==> {name}", flush=True)
    began = time.monotonic()
    # The crash suite restarts the cluster, which only its owner may allow: here this run owns it.
    environment = {**os.environ, "ACTIVITYPOOL_CLUSTER_MAY_RESTART": "1"}
    if keep:
        environment["KEEP"] = "1"
    code = subprocess.run([sys.executable, *arguments], env=environment, check=False).returncode
    return Row(name, time.monotonic() - began, code)


if __name__ == "__main__":
    sys.exit(main())
