"""The Step Functions emulators in the cluster run a task from StartExecution to its end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tests.cluster import Cluster, probe, requirements, up
from tests.cluster.emulators import Emulator, EmulatorName, ensure_emulator
from tests.eventually import eventually_sync

pytestmark = [
    pytest.mark.timeout(1800),  # the first run on a machine builds Kubernetes
    pytest.mark.skipif(
        not requirements.docker_answers() and requirements.why_not_embedded() is not None,
        reason=f"no local cluster here: {requirements.why_not_embedded()}",
    ),
]


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """The running, healthy cluster."""
    return up()


@pytest.fixture(scope="module", params=["localemu", "ministack"])
def emulator(request: pytest.FixtureRequest, cluster: Cluster) -> Emulator:
    """Each emulator in turn."""
    name: EmulatorName = request.param
    return ensure_emulator(cluster, name)


@pytest.fixture
def states(emulator: Emulator) -> Iterator[Any]:
    """A Step Functions client of the emulator."""
    client = boto3.client(
        "stepfunctions",
        endpoint_url=emulator.host_url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(read_timeout=70, retries={"max_attempts": 0}),
    )
    yield client
    client.close()


def _start(states: Any, name: str, **task: Any) -> tuple[str, str]:
    """A state machine of one activity task, and one execution of it; returns the activity's and execution's ARN."""
    activity = next(
        (known["activityArn"] for known in states.list_activities()["activities"] if known["name"] == name), None
    )
    activity = activity or states.create_activity(name=name)["activityArn"]
    state = {"Type": "Task", "Resource": activity, "End": True, **task}
    machine = states.create_state_machine(
        name=f"{name}-{len(states.list_state_machines()['stateMachines'])}",
        definition=json.dumps({"StartAt": "Work", "States": {"Work": state}}),
        roleArn="arn:aws:iam::000000000000:role/states",
    )
    execution = states.start_execution(stateMachineArn=machine["stateMachineArn"], input='{"n": 1}')
    return activity, execution["executionArn"]


def _ends(states: Any, execution: str, *ends: str) -> None:
    eventually_sync(
        f"{execution} ends as {' or '.join(ends)}",
        lambda: states.describe_execution(executionArn=execution)["status"] in ends,
        seconds=30,
    )


def test_task_is_polled_heartbeaten_and_concluded(states: Any) -> None:
    """The calls that a worker makes, from this machine."""
    activity, execution = _start(states, "concluded", HeartbeatSeconds=30)

    task = states.get_activity_task(activityArn=activity, workerName="test")
    states.send_task_heartbeat(taskToken=task["taskToken"])
    states.send_task_success(taskToken=task["taskToken"], output='{"done": true}')

    assert json.loads(task["input"]) == {"n": 1}
    _ends(states, execution, "SUCCEEDED")


@pytest.mark.parametrize("emulator", ["localemu"], indirect=True)
def test_localemu_times_out_a_task_without_heartbeats(emulator: Emulator, states: Any) -> None:
    """LocalEmu enforces HeartbeatSeconds; ministack does not."""
    activity, execution = _start(states, "silent", HeartbeatSeconds=2)

    states.get_activity_task(activityArn=activity, workerName="test")

    _ends(states, execution, "FAILED", "TIMED_OUT")


def test_pod_reaches_the_emulator_by_its_name(emulator: Emulator, cluster: Cluster) -> None:
    """The URL for pods answers in a pod."""
    ask = f"""
import urllib.error, urllib.request
try:
    print(urllib.request.urlopen({emulator.in_cluster_url!r}, timeout=5).status)
except urllib.error.HTTPError as answered:
    print(answered.code)
"""
    with probe.namespace(cluster, f"test-{emulator.name}") as name:
        probe.deploy(cluster, name)

        assert int(probe.in_pod(cluster, name, ask)) < 500
