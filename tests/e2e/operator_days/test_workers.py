"""Twenty busy workers beside an operator that is restarted, upgraded, frozen and killed: none of them is affected."""

import time

import pytest

from tests.e2e.harness import CREDENTIALS, ClusterHarness
from tests.e2e.operator_days.audit import out_of_term
from tests.e2e.operator_days.busy_workers import SIZE, BusyWorkers, gated, open_gates
from tests.e2e.operator_days.operator import Operator, next_version
from tests.e2e.operator_days.view import NAME, OperatorView
from tests.e2e.pool import Pool, a_pool
from tests.e2e.revised import revised
from tests.e2e.view import PoolView

pytestmark = pytest.mark.timeout(1800)

#: The seconds that the present operator and the next version (next/Dockerfile) add to drain.timeoutSeconds, by default
#: 1800.
GRACE, NEXT_GRACE = 1800 + 90, 1800 + 123


def test_rolling_restart_touches_no_worker_and_loses_no_open_poll(
    harness: ClusterHarness, operator: Operator, busy_workers: BusyWorkers, namespace: str
) -> None:
    with busy_workers.untouched():
        visitor = _pool_at_zero(harness, namespace)
        before = operator.now
        operator.kubectl("rollout", "restart", f"deployment/{NAME}")
        operator.eventually("the leader is being deleted", lambda view: not view.serves(before.leader))
        visitor.executions.start(2)
        operator.eventually("two new replicas serve", lambda view: view.settled and not _common(view, before))
        visitor.wait_done()
        visitor.assert_nothing_lost()


def test_upgrade_and_later_edits_touch_no_worker_until_pods_change(
    harness: ClusterHarness, operator: Operator, busy_workers: BusyWorkers, namespace: str
) -> None:
    rolled = gated(harness, namespace, "rolled", minWorkers=2, maxWorkers=2)
    rolled.executions.start(2)
    rolled.eventually("both workers are busy", lambda view: view.status.get("busyWorkers") == 2)
    image = {"repository": NAME, "tag": next_version(), "pullPolicy": "IfNotPresent"}
    with busy_workers.untouched():
        visitor = Pool(harness, namespace, "visitor", harness.machine(f"visitor-{namespace}"))
        # While the activity is missing no replica polls, so the former leader need not wait for the end of a poll.
        harness.states.delete_activity(activityArn=visitor.tasks.activity)
        visitor.apply(maxWorkers=2)
        visitor.wait_until("Ready", "False", "ActivityNotFound")
        env = [*CREDENTIALS, {"name": "NEXT", "value": "yes"}]
        operator.upgrade(image=image, podAnnotations={"build": "next"}, podLabels={"version": "next"}, extraEnv=env)
        operator.settle()

        visitor.act()
        harness.states.create_activity(name=f"visitor-{namespace}")
        visitor.wait_until("Ready", "True")
        assert set().union(*map(_grace, visitor.since(0))) == {GRACE}, "the upgrade changed a Deployment"
        visitor.executions.start(1)
        visitor.wait_done()
        visitor.assert_nothing_lost()
        assert _grace(visitor.now) == {NEXT_GRACE}

    with busy_workers.edited() as pool:
        pool.kubectl("scale", "apool", pool.name, f"--replicas={SIZE}")
        pool.wait_until("Pinned", "True", "ReplicasSet")
        pool.change(maxWorkers=SIZE + 5)
        pool.wait_until("Ready", "True")
        pool.change(maxWorkers=SIZE, replicas=None)
        pool.wait_until("Pinned", "False", "ReplicasUnset")
    assert _grace(busy_workers.gather().now) == {GRACE}
    _roll_out(rolled, revised("2"))


def _roll_out(pool: Pool, image: str) -> None:
    """Change the image of a pool whose two workers are busy: one new worker starts beside them, and then the others."""
    before = pool.now
    pool.change(handlerImage=image)
    canary = pool.eventually("the new revision has a ready worker", lambda view: len(view.ready) == 3)
    assert _grace(canary) == {GRACE, NEXT_GRACE}
    assert all(before.workers <= view.workers for view in pool.since() if view.moment.at <= canary.moment.at)
    assert max(len(view.workers) for view in pool.since() if view.moment.at <= canary.moment.at) == 3
    pool.act()
    open_gates(pool)
    (old,) = before.revisions
    pool.eventually("the old revision is gone", lambda view: view.revisions and old not in view.revisions)
    pool.wait_done()
    pool.assert_nothing_lost()
    assert _grace(pool.now) == {NEXT_GRACE}


def test_frozen_leader_resumes_as_a_standby_and_passes_on_its_task(
    harness: ClusterHarness, operator: Operator, busy_workers: BusyWorkers, namespace: str
) -> None:
    with busy_workers.untouched():
        visitor = _pool_at_zero(harness, namespace, HeartbeatSeconds=60)
        before = operator.settle()
        frozen = operator.signal(before.leader, "STOP")
        try:
            visitor.executions.start(1)  # for the poll that the frozen process holds open
            taken = operator.await_takeover(before.holder, frozen, "leader frozen")
            visitor.executions.start(1)
        finally:
            operator.signal(before.leader, "CONT")
        visitor.wait_done()
        visitor.assert_nothing_lost()
        assert any(attempt.worker.endswith(before.leader) for attempt in visitor.tasks.attempts())
        assert taken.leader != before.leader
        assert operator.settle().restarts == before.restarts


def test_workers_go_on_while_no_replica_of_the_operator_runs(
    harness: ClusterHarness, operator: Operator, busy_workers: BusyWorkers, namespace: str
) -> None:
    with busy_workers.untouched():
        before = operator.settle()
        (standby,) = set(before.replicas) - {before.leader}
        restarts = before.replicas[standby].restarts
        killed = operator.signal(standby, "KILL")
        mark = operator.mark
        operator.kubectl("delete", "pod", before.leader, "--grace-period=0", "--force")
        visitor = a_pool(harness, namespace, "visitor", maxWorkers=2)
        visitor.executions.start(1)
        visitor.wait_done()
        visitor.assert_nothing_lost()
        operator.await_takeover(before.holder, killed, "leader deleted by force, standby killed -9")
        operator.eventually(
            "the standby is back and the leader is replaced",
            lambda view: view.settled and not view.serves(before.leader) and view.replicas[standby].restarts > restarts,
        )
        counts = {view.replicas[standby].restarts for view in operator.since(mark)}
        assert counts == {restarts, restarts + 1}, "a replica ended that was not killed"


def test_busy_workers_lose_no_task_and_only_leaders_write_about_pools(
    harness: ClusterHarness, operator: Operator, busy_workers: BusyWorkers
) -> None:
    pool = busy_workers.gather()
    assert pool.tasks.running_at(time.time()) == SIZE
    open_gates(pool)
    pool.wait_done()
    pool.assert_nothing_lost()
    writes = operator.audit.writes()
    assert writes or harness.cluster.audit_log is None, "the audit log has no write of the operator"
    assert not out_of_term(writes)


def _pool_at_zero(harness: ClusterHarness, namespace: str, **task: str | int) -> Pool:
    """Apply a pool that never had a task, and wait until the operator polls for it."""
    pool = a_pool(harness, namespace, "visitor", task=task, maxWorkers=2)
    pool.wait_until("Ready", "True")
    return pool


def _grace(view: PoolView) -> set[int]:
    """Return the grace periods of the pods in the pool's Deployments, in seconds."""
    return {one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] for one in view.deployments}


def _common(view: OperatorView, other: OperatorView) -> set[str]:
    return set(view.replicas) & set(other.replicas)
