"""Handlers at their worst: each costs its own attempt, and neither a worker nor a neighbour's task nor a heartbeat."""

import json

import pytest

from tests.e2e.executions import Attempt
from tests.e2e.misdeeds import TELLING_ATTEMPTS
from tests.e2e.pool import Pool
from tests.e2e.stage import CREDENTIALS, RESOURCES, Stage

pytestmark = pytest.mark.timeout(1800)

#: How each misdeed fails its attempt: the error name, and a part of the cause.
FAILURES = {
    "throw": ("LookupError", "no picture of that name\n\nTraceback"),
    "refuse": ("Shop.SoldOut", "none left"),
    "leave": ("SystemExit", "sys.exit(3)"),
    "vanish": ("ActivityPool.HandlerExited", "exited with code 7"),
    "hang": ("ActivityPool.DeadlineExceeded", "longer than 15 s"),
    "swell": ("ActivityPool.OutputTooLarge", "the limit is 262144"),
    "babble": ("ActivityPool.OutputNotJson", "Object of type set is not JSON serializable"),
}
LIMITED = {"name": "worker", "env": CREDENTIALS, "resources": {**RESOURCES, "limits": {"memory": "160Mi"}}}


def test_what_a_handler_does_costs_its_own_attempt_and_no_worker(stage: Stage, namespace: str) -> None:
    unruly = _pool(stage, namespace, "unruly", maxWorkers=2, slotsPerWorker=2, taskDeadlineSeconds=15)
    hungry = _pool(stage, namespace, "hungry", maxWorkers=2, podTemplate={"spec": {"containers": [LIMITED]}})
    bad = {do: unruly.executions.start(do=do, seconds=0)[0] for do in FAILURES}
    hogs = hungry.executions.start(2, do="hog", seconds=0)
    good = [(pool, arn) for pool in (unruly, hungry) for arn in pool.executions.start(8, do="", seconds=1)]
    for pool in (unruly, hungry):
        pool.wait_done()

    for do, (error, cause) in FAILURES.items():
        _assert_retried(unruly.executions.attempts(bad[do]), {error: cause})
    for hog in hogs:
        # Where the kernel takes the whole container nobody is left to say it: then the service misses the heartbeats.
        out_of_memory = {"ActivityPool.HandlerExited": "out of memory", "States.Timeout": ""}
        _assert_retried(hungry.executions.attempts(hog), out_of_memory)
    assert [len(pool.executions.attempts(arn)) for pool, arn in good] == [1] * len(good), "a neighbour suffered"

    hungry.wait_for("its events tell of the want of memory", lambda: "OOMKilled" in _told(hungry))
    for pool in (unruly, hungry):
        pool.wait_empty()
    unruly.wait_for("its events tell of the last stop", lambda: "worker:stopped" in _told(unruly))
    # One that was taken away before it listened is ended by the signal itself, with 143.
    assert {event["exit"]["code"] for event in unruly.status["events"] if "exit" in event} <= {0, 143}, "a worker died"
    assert "worker:error" not in _told(unruly)


def test_heartbeats_flow_while_a_handler_holds_the_interpreter_and_no_flood_gets_further_than_the_log(
    stage: Stage, namespace: str
) -> None:
    steady = _pool(stage, namespace, "steady", maxWorkers=2, slotsPerWorker=2)
    steady.executions.start(2, do="hold", seconds=40)
    steady.executions.start(2, do="flood", seconds=0)
    steady.wait_done()

    steady.assert_nothing_lost()
    assert not any(name.startswith("task") for name in _told(steady))
    assert len(steady.status["events"]) < 8
    assert len(stage.events(namespace, "steady")) < 8
    assert len(json.dumps(steady.status)) < 16_384


def _pool(stage: Stage, namespace: str, name: str, **spec: object) -> Pool:
    """Apply a pool whose tasks are missed after 30 s without a heartbeat."""
    machine = stage.machine(f"{name}-{namespace}", Parameters=TELLING_ATTEMPTS, HeartbeatSeconds=30)
    pool = Pool(stage, namespace, name, machine)
    pool.apply(**spec)
    return pool


def _assert_retried(attempts: list[Attempt], failures: dict[str, str]) -> None:
    """The first attempt failed in one of these ways (error name, and a part of its cause), the second succeeded."""
    first, second = attempts
    assert failures[first.error] in first.cause, first
    assert second.ending == "succeeded"


def _told(pool: Pool) -> set[str]:
    return {event["name"] for event in pool.status["events"]}
