"""Handlers that misbehave: each fails its own attempt, and affects no worker, no other task and no heartbeat."""

import json
from collections import Counter

import pytest

from tests.e2e.executions import Attempt
from tests.e2e.harness import CREDENTIALS, RESOURCES, ClusterHarness
from tests.e2e.pool import Pool
from tests.e2e.task_input import WITH_ATTEMPT
from tests.e2e.view import PoolView

pytestmark = pytest.mark.timeout(1800)

#: How each misbehaviour fails its attempt: the error name, and a part of the cause.
FAILURES = {
    "throw": ("LookupError", "no picture of that name\n\nTraceback"),
    "refuse": ("Shop.SoldOut", "none left"),
    "leave": ("SystemExit", "sys.exit(3)"),
    "vanish": ("ActivityPool.HandlerExited", "exited with code 7"),
    "hang": ("ActivityPool.DeadlineExceeded", "longer than 15 s"),
    "swell": ("ActivityPool.OutputTooLarge", "the limit is 262144"),
    "babble": ("ActivityPool.OutputNotJson", "object is not a JSON type"),
}
LIMITED = {"name": "worker", "env": CREDENTIALS, "resources": {**RESOURCES, "limits": {"memory": "160Mi"}}}


def test_misbehaving_handler_costs_its_attempt_and_no_worker(harness: ClusterHarness, namespace: str) -> None:
    unruly = _pool(harness, namespace, "unruly", maxWorkers=2, slotsPerWorker=2, taskDeadlineSeconds=15)
    hungry = _pool(harness, namespace, "hungry", maxWorkers=2, podTemplate={"spec": {"containers": [LIMITED]}})
    bad = {do: unruly.executions.start(do=do, seconds=0)[0] for do in FAILURES}
    hogs = hungry.executions.start(2, do="hog", seconds=0)
    good = [(pool, arn) for pool in (unruly, hungry) for arn in pool.executions.start(8, do="", seconds=1)]
    for pool in (unruly, hungry):
        pool.wait_done()

    for do, (error, cause) in FAILURES.items():
        _assert_retried(unruly.executions.attempts(bad[do]), {error: cause})
    for hog in hogs:
        # When the kernel kills the whole container, no process can report it, and the service times the task out.
        out_of_memory = {"ActivityPool.HandlerExited": "out of memory", "States.Timeout": ""}
        _assert_retried(hungry.executions.attempts(hog), out_of_memory)
    assert [len(pool.executions.attempts(arn)) for pool, arn in good] == [1] * len(good), "a good task was disturbed"

    hungry.eventually("its events report the lack of memory", lambda view: "OOMKilled" in _names(view))
    for pool in (unruly, hungry):
        pool.wait_zero(since=pool.now.moment.number)
    unruly.eventually("its events report a stop", lambda view: "worker:stopped" in _names(view))
    history = unruly.since(0)
    # A pod that is deleted before its process handles SIGTERM is ended by the signal itself, with 143.
    exits = {event["exit"]["code"] for view in history for event in view.lifecycle if "exit" in event}
    assert exits <= {0, 143}, "a worker died"
    assert not any("worker:error" in _names(view) for view in history)


def test_heartbeats_continue_and_a_flood_stays_in_the_log(harness: ClusterHarness, namespace: str) -> None:
    steady = _pool(harness, namespace, "steady", maxWorkers=2, slotsPerWorker=2)
    steady.executions.start(2, do="hold", seconds=35)
    steady.executions.start(2, do="flood", seconds=0)
    steady.wait_done()

    steady.assert_nothing_lost()
    for view in steady.since(0):
        assert not any(name.startswith("task") for name in _names(view))
        lives = Counter(event["worker"] for event in view.lifecycle)
        assert max(lives.values(), default=0) < 8, lives
        assert len(json.dumps(view.status)) < 16_384
    about = [event["involvedObject"] for event in steady.now.moment.of_kind("Event")]
    assert sum(item["kind"] == "ActivityPool" for item in about) < 8


def _pool(harness: ClusterHarness, namespace: str, name: str, **spec: object) -> Pool:
    """Apply a pool whose tasks time out after 30 s without a heartbeat."""
    machine = harness.machine(f"{name}-{namespace}", Parameters=WITH_ATTEMPT, HeartbeatSeconds=30)
    pool = Pool(harness, namespace, name, machine)
    pool.apply(**spec)
    return pool


def _assert_retried(attempts: list[Attempt], failures: dict[str, str]) -> None:
    """Assert that the first attempt failed with one of these errors (name -> part of the cause), the second did not."""
    first, second = attempts
    assert failures[first.error] in first.cause, first
    assert second.ending == "succeeded"


def _names(view: PoolView) -> set[str]:
    return {event["name"] for event in view.lifecycle}
