"""All suites in one run, one cluster for those that need it, and a table of the time each took.

`python -m tests.suites [SUITE ...]` runs the named ones; the exit code is that of the worst.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Suite:
    """One call of pytest; `cluster`: it needs the local cluster; `keeps`: it leaves the operator to the next one."""

    name: str
    arguments: tuple[str, ...]
    cluster: bool = False
    keeps: bool = False


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
    rows: list[tuple[str, float, int]] = []
    up = False
    try:
        for suite in chosen:
            if suite.cluster and not up:
                # A cluster that somebody left may hold their objects: the suites begin on an empty one.
                rows.append(_step("cluster down", [sys.executable, "-m", "tests.cluster", "down"]))
                rows.append(_step("cluster up", [sys.executable, "-m", "tests.cluster", "up"]))
                up = rows[-1][2] == 0
                if not up:
                    break
            rows.append(_step(suite.name, [sys.executable, "-m", "pytest", *suite.arguments], keep=suite.keeps))
    finally:
        if up:
            rows.append(_step("cluster down", [sys.executable, "-m", "tests.cluster", "down"]))
    print(f"\n{'suite':<14}{'seconds':>9}  result")
    for name, seconds, code in rows:
        print(f"{name:<14}{seconds:>9.1f}  {'ok' if code == 0 else f'FAILED ({code})'}")
    return max((code for _, _, code in rows), default=0)


def _step(name: str, command: list[str], *, keep: bool = False) -> tuple[str, float, int]:
    print(f"\n==> {name}", flush=True)
    began = time.monotonic()
    # The crash suite restarts the cluster, which only its owner may allow: here this run owns it.
    environment = {**os.environ, "ACTIVITYPOOL_CLUSTER_MAY_RESTART": "1"}
    if keep:
        environment["KEEP"] = "1"
    code = subprocess.run(command, env=environment, check=False).returncode
    return name, time.monotonic() - began, code


if __name__ == "__main__":
    sys.exit(main())
