"""A pool that reads counts: no task's input passes the operator, and what it cannot read it says."""

import json
import time
from typing import Any

import pytest

from tests.cluster import catalogue, find_image, load_image, probe
from tests.e2e.pool import PATIENCE
from tests.e2e.stage import SHORT, Stage, wait_for

pytestmark = pytest.mark.timeout(1800)

PORT = 4566
#: Runs in the emulator's pod: it publishes no counts of its own, so what AWS would have counted is put there.
PUT = """
import botocore.session, json, sys
client = botocore.session.get_session().create_client(
    "cloudwatch", "us-east-1", endpoint_url="http://127.0.0.1:4566", aws_access_key_id="x", aws_secret_access_key="x")
client.put_metric_data(Namespace="AWS/States", MetricData=json.loads(sys.argv[1]))
"""


def counter(stage: Stage, namespace: str) -> str:
    """Run a CloudWatch emulator as a pod of the test's own; returns its URL for pods."""
    image = find_image(catalogue.emulator("ministack"))
    load_image(image)
    container = {
        "name": "emulator",
        "image": image.tag,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "SERVICES", "value": "cloudwatch"}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    meta = {"name": "counts", "namespace": namespace, "labels": {"app": "counts"}}
    probe.apply(stage.cluster, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    service = {"selector": {"app": "counts"}, "ports": [{"port": PORT}]}
    probe.apply(stage.cluster, {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service})
    ready = ("get", "pod", "counts", "-n", namespace, "-o", "jsonpath={.status.containerStatuses[0].ready}")
    wait_for("the counter answers", lambda: stage.kubectl(*ready) == "true", PATIENCE)
    return f"http://counts.{namespace}.svc:{PORT}"


def scheduled(stage: Stage, namespace: str, arn: str, count: int) -> None:
    """Count so many tasks of the activity as scheduled, three minutes ago."""
    data = [
        {
            "MetricName": "ActivitiesScheduled",
            "Dimensions": [{"Name": "ActivityArn", "Value": arn}],
            "Timestamp": time.time() - 180,
            "Value": count,
        }
    ]
    python = ("/opt/emulator/bin/python", "-c", PUT, json.dumps(data))
    stage.kubectl("exec", "-n", namespace, "counts", "--", *python)


def decided(stage: Stage, namespace: str, name: str) -> list[dict[str, Any]]:
    """Return the pool's last decisions, oldest first."""
    found: list[dict[str, Any]] = stage.pool(namespace, name).get("status", {}).get("decisions", [{"desired": None}])
    return found


def test_a_pool_starts_by_its_counts_and_no_task_passes_the_operator(stage: Stage, namespace: str) -> None:
    url = counter(stage, namespace)
    executions = stage.machine(f"counted-{namespace}")
    executions.start(3, seconds=1)
    scheduled(stage, namespace, executions.activity, 3)
    aws = {"endpointUrl": stage.emulator.in_cluster_url, "cloudWatchEndpointUrl": url}
    stage.apply_pool(
        namespace,
        "counted",
        executions.activity,
        maxWorkers=4,
        scaling=SHORT,
        activation={"mode": "CloudWatch"},
        aws=aws,
    )

    wait_for("every execution succeeded", executions.all_succeeded, PATIENCE)
    wait_for("the pool went to zero", lambda: decided(stage, namespace, "counted")[-1]["desired"] == 0, PATIENCE)

    attempts = executions.attempts()
    assert len(attempts) == 3
    assert not [attempt for attempt in attempts if attempt.worker.startswith("activitypool-operator")]
    first = decided(stage, namespace, "counted")[0]
    assert (first["desired"], first["backlog"], first["held"]) == (3, 3, 0)


def test_counts_that_nobody_gives_are_said_and_the_fix_with_them(stage: Stage, namespace: str) -> None:
    executions = stage.machine(f"blind-{namespace}")
    aws = {"endpointUrl": stage.emulator.in_cluster_url, "cloudWatchEndpointUrl": f"http://nobody.{namespace}.svc:1"}
    stage.apply_pool(namespace, "blind", executions.activity, maxWorkers=1, activation={"mode": "CloudWatch"}, aws=aws)

    def ready() -> dict[str, str]:
        return stage.condition(namespace, "blind", "Ready")

    wait_for("the pool says so", lambda: ready()["reason"] == "BackendUnreachable", PATIENCE)
    assert ready()["status"] == "False"
    assert "check spec.aws.cloudWatchEndpointUrl" in ready()["message"]
