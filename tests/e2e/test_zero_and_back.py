"""The main promise: from zero to work and back, with nothing lost."""

import json

import pytest

from tests.e2e.stage import Stage, wait_for

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images
SHORT = {"scaling": {"scaleDown": {"stabilizationWindowSeconds": 5, "zeroAfterSeconds": 10}}}


def test_a_pool_goes_from_zero_to_work_and_back_and_every_execution_succeeds(stage: Stage, namespace: str) -> None:
    activity, machine = stage.machine(f"burst-{namespace}")
    stage.apply_pool(namespace, "burst", activity, maxWorkers=4, **SHORT)
    wait_for("the pool is ready", lambda: _condition(stage, namespace, "Ready") == "True", 60)

    for number in range(12):
        work = json.dumps({"n": number, "seconds": 1})
        stage.states.start_execution(stateMachineArn=machine, input=work)
    wait_for("every execution succeeded", lambda: stage.statuses(machine) == ["SUCCEEDED"] * 12, 120)
    wait_for("the pool is at zero", lambda: stage.pool(namespace, "burst")["status"].get("replicas", 0) == 0, 180)

    status = stage.pool(namespace, "burst")["status"]
    assert max(decision["desired"] for decision in status["decisions"]) == 4
    assert status["decisions"][-1]["desired"] == 0
    assert "worker:running" in {event["name"] for event in status["events"]}


def _condition(stage: Stage, namespace: str, kind: str) -> str:
    found = stage.pool(namespace, "burst").get("status", {}).get("conditions", [])
    return next((condition["status"] for condition in found if condition["type"] == kind), "")
