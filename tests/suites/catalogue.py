"""PURE: the test suites, and what each needs to run beside the others."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Suite:
    """One call of pytest.

    `cluster`: it uses the local cluster, so it runs in the cluster's lane, where suites run one after the other.
    `keeps`: it leaves the operator installed for the next suite of that lane.
    `weight`: how many of the other lanes it takes.
    """

    name: str
    arguments: tuple[str, ...]
    cluster: bool = False
    keeps: bool = False
    weight: int = 1


#: In the order in which they start: the fastest answer first, then the longest ones, so that none of these ends alone.
SUITES = (
    Suite("unit", ("tests/unit", "-n", "2", "--dist", "worksteal")),
    Suite("scenarios", ("tests/scenarios", "-n", "2", "--dist", "worksteal")),
    # Its tests start control planes of their own. Most of the time they wait for Leases to expire and windows to pass.
    Suite("faults", ("tests/faults",)),
    Suite("steps", ("tests/integration/steps", "-n", "2", "--dist", "worksteal")),
    Suite("broker", ("tests/integration/broker",)),
    Suite("processes", ("tests/integration/worker", "tests/integration/reports")),
    # It mostly waits for the time limits of its servers.
    Suite("conformance", ("tests/conformance",)),
    # Each test has servers of its own, and mostly waits for them.
    Suite("redis", ("tests/integration/redis", "tests/integration/flows", "-n", "4", "--dist", "worksteal")),
    Suite("backlog", ("tests/integration/backlog", "-n", "4", "--dist", "worksteal")),
    Suite("hostile", ("tests/hostile",)),
    Suite("operator", ("tests/integration/operator",)),
    Suite("crd", ("tests/integration/crd",)),
    Suite("chart", ("tests/integration/chart",)),
    Suite("cluster", ("tests/integration/test_local_cluster.py", "tests/integration/test_emulators.py"), cluster=True),
    Suite("e2e", ("tests/e2e", "-n", "5", "--dist", "worksteal"), cluster=True, keeps=True),
    # After e2e, and alone: its tests kill and replace the operator that e2e has installed.
    Suite("operator-days", ("tests/e2e/operator_days",), cluster=True),
    Suite("crash", ("tests/cluster",), cluster=True),
)


def named(names: Sequence[str]) -> list[Suite]:
    """Return the suites of these names, in the order in which they start; without names, all suites.

    Raises ValueError that lists the known names when one of `names` is no suite.
    """
    known = [suite.name for suite in SUITES]
    if unknown := sorted(set(names) - set(known)):
        raise ValueError(f"no such suite: {', '.join(unknown)}; the suites are {', '.join(known)}")
    return [suite for suite in SUITES if not names or suite.name in names]
