"""The main promise: from zero to work and back, with nothing lost."""

import pytest

from tests.e2e.pool import PATIENCE
from tests.e2e.stage import SHORT, Stage, wait_for

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images


def test_a_pool_goes_from_zero_to_work_and_back_and_every_execution_succeeds(stage: Stage, namespace: str) -> None:
    executions = stage.machine(f"burst-{namespace}")
    stage.apply_pool(namespace, "burst", executions.activity, maxWorkers=4, scaling=SHORT)
    wait_for("the pool is ready", lambda: stage.condition(namespace, "burst", "Ready")["status"] == "True", PATIENCE)

    executions.start(12, seconds=1)
    wait_for("every execution succeeded", executions.all_succeeded, PATIENCE)
    wait_for("the pool is at zero", lambda: stage.pool(namespace, "burst")["status"].get("replicas", 0) == 0, PATIENCE)

    assert len(executions.attempts()) == 12, "a task was handed out twice"
    assert not executions.interrupted()
    status = stage.pool(namespace, "burst")["status"]
    assert max(decision["desired"] for decision in status["decisions"]) == 4
    assert status["decisions"][-1]["desired"] == 0
    assert "worker:running" in {event["name"] for event in status["events"]}
