"""The operator killed while it holds leases."""

import time
from typing import Any

import pytest

from tests.e2e.operator_days.crew import Crew, gated, open_gates
from tests.e2e.operator_days.operator import Operator
from tests.e2e.pool import Pool, a_pool
from tests.e2e.stage import CREDENTIALS, Stage, wait_for

pytestmark = pytest.mark.timeout(1800)

#: Of the tasks that wait: more than a takeover and a crowded node's first look at the records take together.
HEARTBEAT_SECONDS = 60
LIMITS = {"HeartbeatSeconds": HEARTBEAT_SECONDS}


def test_leases_of_a_killed_leader_are_kept_alive_and_handed_over(
    stage: Stage, operator: Operator, crew: Crew, namespace: str
) -> None:
    label = f"open-{namespace}"
    closed = {"nodeSelector": {label: "yes"}, "containers": [{"name": "worker", "env": CREDENTIALS}]}
    common: dict[str, Any] = {"task": LIMITS, "podTemplate": {"spec": closed}, "maxWorkers": 2}
    waiting = [a_pool(stage, namespace, f"waiting-{n}", **common) for n in (1, 2)]
    underway = gated(stage, namespace, "underway", maxWorkers=1)
    for pool in (*waiting, underway):
        pool.executions.start(1)
    wait_for("two leases wait for a worker", lambda: operator.leases(namespace, owned=False) == 2, 120)
    wait_for("one lease has been claimed", lambda: operator.leases(namespace, owned=True) == 1, 240)
    for pool in waiting:
        pool.wait_until("Ready", "False", "WorkersUnschedulable")

    former, process = operator.leader(), operator.holder()
    killed = operator.signal([former], "KILL")
    open_gates(underway)
    crew.call()  # they start while nobody leads: what a kubelet does needs no operator
    underway.wait_done()
    operator.await_takeover(process, killed, "leader killed -9 while it held leases")
    wait_for("the lease concluded without a leader is forgotten", lambda: _none_owned(operator, namespace), 120)
    wait_for("the dead leader's task heartbeats are over", lambda: time.time() > killed + HEARTBEAT_SECONDS + 2, 120)
    assert [_still_waits(pool, former) for pool in waiting] == [True, True]

    try:
        stage.kubectl("label", "node", "--all", f"{label}=yes")
        for pool in (*waiting, underway):
            pool.wait_done()
            pool.assert_nothing_lost()
            assert not pool.events("LeaseExpired")
        wait_for("no lease is left", lambda: operator.leases(namespace, owned=True) == 0, 120)
    finally:
        stage.kubectl("label", "node", "--all", f"{label}-")
    assert operator.leases(namespace, owned=False) == 0
    operator.settle()


def _none_owned(operator: Operator, namespace: str) -> bool:
    return operator.leases(namespace, owned=True) == 0


def _still_waits(pool: Pool, taken_by: str) -> bool:
    """Whether the pool's one task is still the first attempt, and was taken by this replica of the operator."""
    attempts = pool.executions.attempts()
    return [(a.ending, a.worker) for a in attempts] == [("", f"activitypool-operator/{taken_by}")]
