"""A pool that reads CloudWatch counts: the operator gets no task's input, and reports unreadable counts."""

import json
import time

import pytest

from tests.cluster import catalogue, find_image, load_image
from tests.e2e.harness import ClusterHarness
from tests.e2e.pool import Pool, a_pool
from tests.readiness import is_ready

pytestmark = pytest.mark.timeout(1800)

PORT = 4566
#: The name of the pod with CloudWatch.
COUNTS = "counts"
#: Run in that pod: its emulator publishes no metrics itself, so the test puts there what AWS would have counted.
PUT = """
import botocore.session, json, sys
client = botocore.session.get_session().create_client(
    "cloudwatch", "us-east-1", endpoint_url="http://127.0.0.1:4566", aws_access_key_id="x", aws_secret_access_key="x")
client.put_metric_data(Namespace="AWS/States", MetricData=json.loads(sys.argv[1]))
"""


def counter(harness: ClusterHarness, namespace: str) -> str:
    """Run a CloudWatch emulator as a pod in the test's namespace; returns its URL for pods."""
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
    meta = {"name": COUNTS, "namespace": namespace, "labels": {"app": COUNTS}}
    harness.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    service = {"selector": {"app": COUNTS}, "ports": [{"port": PORT}]}
    harness.apply({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service})
    harness.timeline(namespace).eventually("the emulator answers", lambda moment: is_ready(moment.get("Pod", COUNTS)))
    return f"http://{COUNTS}.{namespace}.svc:{PORT}"


def put_scheduled(harness: ClusterHarness, namespace: str, arn: str, count: int) -> None:
    """Put the count of tasks that were scheduled for an activity three minutes ago."""
    data = [
        {
            "MetricName": "ActivitiesScheduled",
            "Dimensions": [{"Name": "ActivityArn", "Value": arn}],
            "Timestamp": time.time() - 180,
            "Value": count,
        }
    ]
    python = ("/opt/emulator/bin/python", "-c", PUT, json.dumps(data))
    harness.kubectl("exec", "-n", namespace, COUNTS, "--", *python)


def test_pool_starts_by_its_counts_and_no_task_passes_the_operator(harness: ClusterHarness, namespace: str) -> None:
    url = counter(harness, namespace)
    pool = Pool(harness, namespace, "counted", harness.machine(f"counted-{namespace}"))
    pool.executions.start(3, seconds=1)
    put_scheduled(harness, namespace, pool.tasks.activity, 3)
    aws = {"endpointUrl": harness.emulator.in_cluster_url, "cloudWatchEndpointUrl": url}
    pool.apply(maxWorkers=4, activation={"mode": "CloudWatch"}, aws=aws)
    grown = pool.eventually("has decided", lambda view: view.decisions)
    pool.wait_done()
    pool.wait_zero(since=pool.now.moment.number)

    attempts = pool.tasks.attempts()
    assert len(attempts) == 3
    assert not [attempt for attempt in attempts if attempt.worker.startswith("activitypool-operator")]
    first = grown.decisions[0]
    assert (first["desired"], first["backlog"], first["held"]) == (3, 3, 0)


def test_missing_counts_are_reported_with_the_fix(harness: ClusterHarness, namespace: str) -> None:
    aws = {"endpointUrl": harness.emulator.in_cluster_url, "cloudWatchEndpointUrl": f"http://absent.{namespace}.svc:1"}
    pool = a_pool(harness, namespace, "blind", maxWorkers=1, activation={"mode": "CloudWatch"}, aws=aws)
    message = pool.wait_until("Ready", "False", "BackendUnreachable")
    assert "check spec.aws.cloudWatchEndpointUrl" in message
