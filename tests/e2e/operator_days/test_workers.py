"""Twenty busy workers, and an operator that has one bad day after the other: none of them notices."""

import pytest

from tests.e2e.operator_days.audit import out_of_term
from tests.e2e.operator_days.crew import SIZE, Crew, open_gates
from tests.e2e.operator_days.operator import NAME, Operator, next_version
from tests.e2e.pool import Pool, a_pool
from tests.e2e.stage import CREDENTIALS, SYSTEM, Stage, wait_for

pytestmark = pytest.mark.timeout(1800)

#: What today's operator and the next version (next/Dockerfile) add to drain.timeoutSeconds, 1800 by default.
GRACE, NEXT_GRACE = 1800 + 80, 1800 + 123


def test_a_rolling_restart_touches_no_worker_and_loses_no_open_poll(
    stage: Stage, operator: Operator, crew: Crew, namespace: str
) -> None:
    with crew.untouched():
        visitor = _asleep(stage, namespace, "visitor")
        former = {replica.name for replica in operator.replicas()}
        leader = operator.leader()
        stage.kubectl("rollout", "restart", f"deployment/{NAME}", "-n", SYSTEM)
        wait_for("the leader is ending", lambda: _is_going(operator, leader), 240)
        visitor.executions.start(2)
        wait_for("the former replicas are gone", lambda: not former & _names(operator), 300)
        operator.settle()
        visitor.wait_done()
        visitor.assert_nothing_lost()


def test_an_upgrade_rolls_no_worker_and_the_next_start_from_zero_is_rendered_anew(
    stage: Stage, operator: Operator, crew: Crew, namespace: str
) -> None:
    image = {"repository": NAME, "tag": next_version(), "pullPolicy": "IfNotPresent"}
    with crew.untouched():
        visitor = Pool(stage, namespace, "visitor", stage.machine(f"visitor-{namespace}"))
        # While there is no activity nobody polls, so that the former leader has no poll whose end it must await.
        stage.states.delete_activity(activityArn=visitor.executions.activity)
        visitor.apply(maxWorkers=2)
        visitor.wait_until("Ready", "False", "ActivityNotFound")
        env = [*CREDENTIALS, {"name": "NEXT", "value": "yes"}]
        operator.upgrade(image=image, podAnnotations={"build": "next"}, podLabels={"version": "next"}, extraEnv=env)
        operator.settle()
        assert _grace(visitor) == {GRACE}, "an upgrade alone writes nothing"
        stage.states.create_activity(name=f"visitor-{namespace}")
        visitor.executions.start(1)
        visitor.wait_done()
        visitor.assert_nothing_lost()
        assert _grace(visitor) == {NEXT_GRACE}


def test_a_frozen_leader_that_goes_on_writes_nothing_and_gives_up_what_its_poll_brought(
    stage: Stage, operator: Operator, crew: Crew, namespace: str
) -> None:
    with crew.untouched():
        visitor = _asleep(stage, namespace, "visitor", HeartbeatSeconds=60)
        restarts = sum(replica.restarts for replica in operator.replicas())
        former = operator.settle()
        process = operator.holder()
        frozen = operator.signal([former], "STOP")
        try:
            visitor.executions.start(1)  # into the poll that the frozen process holds open
            operator.await_takeover(process, frozen, "leader frozen")
            visitor.executions.start(1)
        finally:
            operator.signal([former], "CONT")
        visitor.wait_done()
        visitor.assert_nothing_lost()
        assert any(attempt.worker.endswith(former) for attempt in visitor.executions.attempts())
        operator.settle()
        assert operator.leader() != former
        assert sum(replica.restarts for replica in operator.replicas()) == restarts


def test_with_the_leader_deleted_by_force_and_the_standby_killed_nothing_changes_until_one_is_back(
    stage: Stage, operator: Operator, crew: Crew, namespace: str
) -> None:
    with crew.untouched():
        leader = operator.settle()
        (standby,) = (replica for replica in operator.replicas() if replica.name != leader)
        killed = operator.signal([standby.name], "KILL")
        stage.kubectl("delete", "pod", leader, "-n", SYSTEM, "--grace-period=0", "--force")
        visitor = _asleep(stage, namespace, "visitor", ready=False)
        visitor.executions.start(1)
        visitor.wait_done()
        visitor.assert_nothing_lost()
        operator.note_takeover(killed, "leader deleted by force, standby killed -9")
        operator.settle()
        after = {replica.name: replica for replica in operator.replicas()}
        assert after[standby.name].restarts == standby.restarts + 1
        assert leader not in after


def test_after_all_of_this_every_task_was_concluded_by_the_worker_that_began_it(operator: Operator, crew: Crew) -> None:
    pool = crew.gather()
    assert pool.executions.running() == SIZE
    open_gates(pool)
    pool.wait_done()
    pool.assert_nothing_lost()
    assert not out_of_term(operator.audit.writes())


def _asleep(stage: Stage, namespace: str, name: str, *, ready: bool = True, **task: str | int) -> Pool:
    """Apply a pool that has never had work; when it is ready the sentinel polls for it."""
    pool = a_pool(stage, namespace, name, task=task, maxWorkers=2)
    if ready:
        pool.wait_until("Ready", "True")
    return pool


def _grace(pool: Pool) -> set[int]:
    return {d["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] for d in pool.deployments()}


def _names(operator: Operator) -> set[str]:
    return {replica.name for replica in operator.replicas()}


def _is_going(operator: Operator, name: str) -> bool:
    """Whether the replica is ending, or is gone already."""
    return all(replica.going for replica in operator.replicas() if replica.name == name)
