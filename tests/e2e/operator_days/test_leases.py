"""The operator is killed while it holds task leases."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.harness import CREDENTIALS, ClusterHarness
from tests.e2e.operator_days.busy_workers import BusyWorkers, gated, open_gates
from tests.e2e.operator_days.operator import Operator
from tests.e2e.pool import a_pool

pytestmark = pytest.mark.timeout(1800)

#: HeartbeatSeconds of the waiting tasks: more than a takeover and the next leader's first list take on a busy machine.
HEARTBEAT_SECONDS = 45
LIMITS = {"HeartbeatSeconds": HEARTBEAT_SECONDS}


def test_leases_of_a_killed_leader_are_kept_alive_and_handed_over(
    harness: ClusterHarness, operator: Operator, busy_workers: BusyWorkers, namespace: str
) -> None:
    label = f"open-{namespace}"
    closed = {"nodeSelector": {label: "yes"}, "containers": [{"name": "worker", "env": CREDENTIALS}]}
    common: dict[str, Any] = {"task": LIMITS, "podTemplate": {"spec": closed}, "maxWorkers": 2}
    waiting = [a_pool(harness, namespace, f"waiting-{n}", **common) for n in (1, 2)]
    underway = gated(harness, namespace, "underway", maxWorkers=1)
    pools = (*waiting, underway)
    for pool in pools:
        pool.executions.start(1)
    operator.eventually("two leases wait, one has an owner", lambda view: view.leases(namespace) == (2, 1))
    for pool in waiting:
        pool.wait_until("Ready", "False", "WorkersUnschedulable")

    former = operator.now
    killed = operator.signal(former.leader, "KILL")
    open_gates(underway)
    busy_workers.call()  # the busy workers start while the operator has no leader
    underway.wait_done()
    operator.await_takeover(former.holder, killed, "leader killed -9 while it held leases")
    operator.eventually("the concluded lease is forgotten", lambda view: view.leases(namespace) == (2, 0))
    busy_workers.gather()
    # By then the heartbeats of the killed process no longer count: only the next leader's keep the tasks.
    time.sleep(max(killed + HEARTBEAT_SECONDS + 2 - time.time(), 0))
    operator.act()
    opened = time.time()
    with _labelled_nodes(harness, label):
        for pool in pools:
            pool.wait_done()
            pool.assert_nothing_lost()
            assert not pool.now.events("LeaseExpired")
        operator.eventually("no lease is left", lambda view: view.leases(namespace) == (0, 0))
    for pool in waiting:
        (attempt,) = pool.tasks.attempts()
        assert attempt.worker == f"activitypool-operator/{former.leader}"
        assert attempt.began < killed
        assert attempt.ended > opened


@contextmanager
def _labelled_nodes(harness: ClusterHarness, label: str) -> Iterator[None]:
    """Give all nodes a label inside the block."""
    harness.kubectl("label", "node", "--all", f"{label}=yes")
    try:
        yield
    finally:
        harness.kubectl("label", "node", "--all", f"{label}-")
