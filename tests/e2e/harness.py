"""The harness of the end-to-end tests: images, the operator installed with Helm, an emulator, and a client for it."""

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import boto3
from botocore.config import Config
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster import Cluster, ClusterError, catalogue, current, find_image, load_image, paths, probe, up
from tests.cluster.emulators import Emulator, ensure_emulator
from tests.cluster.progress import say, step
from tests.cluster.shell import run
from tests.e2e.executions import Executions
from tests.e2e.timeline import OF_OPERATOR, OF_POOLS, Timeline
from tests.eventually import eventually_sync

ROOT = Path(__file__).parents[2]
SYSTEM = "activitypool-system"
OPERATOR_PODS, METRICS_PORT = "app.kubernetes.io/name=activity-operator", 8080
SHORT = {"scaleDown": {"stabilizationWindowSeconds": 5, "zeroAfterSeconds": 10}}  # a pool's `scaling`, for a test
CREDENTIALS = [{"name": "AWS_ACCESS_KEY_ID", "value": "test"}, {"name": "AWS_SECRET_ACCESS_KEY", "value": "test"}]
# Pods without a CPU request share one five-hundredth of a busy node, and a hundred of them would not even start.
RESOURCES = {"requests": {"cpu": "20m"}}
#: Seconds for an installation, and for the command that waits for it.
INSTALL_SECONDS, HELM_SECONDS = 600, 660
#: The last lines of each answer that tells why an installation failed.
EVENTS = 10
#: pytest-xdist's name for the run that its processes have in common.
RUN = "PYTEST_XDIST_TESTRUNUID"


@dataclass(frozen=True)
class ClusterHarness:
    """What a test needs: `handler` is the image of `handler.py` on the present runtime."""

    cluster: Cluster
    emulator: Emulator
    handler: str
    states: Any
    timelines: dict[str, Timeline] = field(default_factory=dict, compare=False)

    def timeline(self, namespace: str) -> Timeline:
        """Return the timeline of a namespace, which starts at the first call."""
        if namespace not in self.timelines:
            kinds = OF_OPERATOR if namespace == SYSTEM else OF_POOLS
            self.timelines[namespace] = Timeline(self.cluster.kubeconfig, namespace, kinds)
            self.timelines[namespace].start()
        return self.timelines[namespace]

    def forget(self, namespace: str) -> None:
        """End the timeline of a namespace, if there is one."""
        if namespace in self.timelines:
            self.timelines.pop(namespace).stop()

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator; returns its output."""
        return probe.kubectl(self.cluster, *words, stdin=stdin)

    def operator_samples(self, metric: str, labels: Mapping[str, str]) -> list[float]:
        """Return the values of a metric with these labels, from every replica of the operator that has it."""
        pods = self.kubectl("get", "pods", "-n", SYSTEM, "-l", OPERATOR_PODS, "-o", "name").split()
        values: list[float] = []
        for pod in pods:
            place = f"/api/v1/namespaces/{SYSTEM}/pods/{pod.removeprefix('pod/')}:{METRICS_PORT}/proxy/metrics"
            for family in text_string_to_metric_families(self.kubectl("get", "--raw", place)):
                found = [one for one in family.samples if one.name == metric and labels.items() <= one.labels.items()]
                values += [one.value for one in found]
        return values

    def apply_pool(self, namespace: str, name: str, arn: str, **spec: Any) -> dict[str, Any]:
        """Apply a pool on the emulator, with the given windows; return the stored object."""
        container = {"name": "worker", "env": CREDENTIALS, "resources": RESOURCES}
        body = {
            "apiVersion": "activitypools.dev/v1alpha1",
            "kind": "ActivityPool",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "activityArn": arn,
                "handlerImage": self.handler,
                "aws": {"endpointUrl": self.emulator.in_cluster_url},
                "podTemplate": {"spec": {"containers": [container]}},
                **spec,
            },
        }
        return self.apply(body)

    def apply(self, document: dict[str, Any]) -> dict[str, Any]:
        """Apply an object; return the stored object."""
        stored = self.kubectl("apply", "--filename", "-", "-o", "json", stdin=json.dumps(document))
        return cast("dict[str, Any]", json.loads(stored))

    def machine(self, name: str, **task: Any) -> Executions:
        """Create an activity and a state machine with one task of it and a Retry; `task` adds to the state."""
        activity = self.states.create_activity(name=name)["activityArn"]
        retry = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 3, "BackoffRate": 1.5}]
        # LocalEmu ends a task with HeartbeatSeconds and no TimeoutSeconds 60 s after it was scheduled.
        limits = {"HeartbeatSeconds": 30, "TimeoutSeconds": 900}
        state = {"Type": "Task", "Resource": activity, "Retry": retry, "End": True, **limits, **task}
        made = self.states.create_state_machine(
            name=name,
            roleArn="arn:aws:iam::000000000000:role/test",
            definition=json.dumps({"StartAt": "Work", "States": {"Work": state}}),
        )
        return Executions(self.states, activity, made["stateMachineArn"])


def set_up() -> ClusterHarness:
    """Bring up the cluster, install the present operator and return the harness; what exists already is reused.

    The processes of one run share a harness: the first sets it up while the others wait, and they take it as it is.
    """
    run = os.environ.get(RUN, "")
    paths.cluster().mkdir(parents=True, exist_ok=True)
    with (paths.cluster() / "harness.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another command that sets up the same harness")
            fcntl.flock(lock, fcntl.LOCK_EX)
        made, cluster = paths.cluster() / "harness.run", current()
        if cluster is None or not run or not made.exists() or made.read_text() != run:
            cluster = _install()
            made.write_text(run)
        emulator = ensure_emulator(cluster, "localemu")
        return ClusterHarness(cluster, emulator, find_image(catalogue.handler()).tag, client(emulator))


def client(emulator: Emulator, **config: Any) -> Any:
    """Return a Step Functions client for the emulator; `config` is botocore's, by default with 3 attempts."""
    return boto3.client(
        "stepfunctions",
        endpoint_url=emulator.host_url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"max_attempts": 3}).merge(Config(**config)),
    )


def is_installed(cluster: Cluster) -> bool:
    """Whether the operator's release is in the cluster, also one whose installation was interrupted.

    Raises ClusterError when the cluster does not answer, because it may still have an operator.
    """
    try:
        _helm(cluster, "status", "activity-operator", "-n", SYSTEM)
    except ClusterError as error:
        if "release: not found" in str(error):
            return False
        raise
    return True


def tear_down() -> None:
    """Uninstall the operator and its CRD if they exist, so that the other suites find the cluster as before."""
    cluster = current()
    if cluster is None or not is_installed(cluster):
        return
    _helm(cluster, "uninstall", "activity-operator", "-n", SYSTEM, "--wait")
    probe.kubectl(cluster, "delete", "crd", "activitypools.activitypools.dev", "--wait")
    probe.kubectl(cluster, "delete", "namespace", SYSTEM, "--wait=false")


def _install() -> Cluster:
    """Install the present operator with Helm in the cluster, and load the handler's image; return the cluster."""
    cluster = up()
    operator = find_image(catalogue.operator())
    for image in (operator, find_image(catalogue.handler())):
        load_image(image)
    values = {
        "image": {"repository": "activity-operator", "tag": "dev", "pullPolicy": "IfNotPresent"},
        "podAnnotations": {"build": operator.key},
        "extraEnv": CREDENTIALS,
        "stopSeconds": 65,
        "tenancy": {"rules": [{"namespaces": ["*"], "endpointUrls": ["*"]}]},
        "log": {"level": "DEBUG", "format": "text"},
    }
    given = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    chart = str(ROOT / "charts" / "activity-operator")
    # An earlier run may have ended while its namespace was still being deleted.
    phase = ("get", "namespace", SYSTEM, "--ignore-not-found", "-o", "jsonpath={.status.phase}")
    eventually_sync(
        f"no namespace {SYSTEM} is being deleted",
        lambda: probe.kubectl(cluster, *phase) != "Terminating",
        seconds=INSTALL_SECONDS,
        every_seconds=0.5,
        tolerate=(ClusterError,),
    )
    with step("helm upgrade --install activity-operator"):
        try:
            _helm(
                cluster, "upgrade", "--install", "activity-operator", chart, "-n", SYSTEM, "--create-namespace", *given,
                "--wait", f"--timeout={INSTALL_SECONDS}s",
            )  # fmt: skip
        except ClusterError as failed:
            raise ClusterError(f"{failed}\n{_why_not(cluster)}") from failed
    return cluster


def _why_not(cluster: Cluster) -> str:
    """Return the operator's pods and the last Events of its namespace and its nodes, for a failed installation."""
    asked = (
        ("get", "pods", "-n", SYSTEM, "-o", "wide"),
        ("get", "events", "-n", SYSTEM, "-o", "custom-columns=AT:.lastTimestamp,WHY:.reason,WHAT:.message"),
        ("get", "events", "-n", "default", "-o", "custom-columns=AT:.lastTimestamp,WHY:.reason,WHAT:.message"),
    )
    lines: list[str] = []
    for words in asked:
        try:
            lines += probe.kubectl(cluster, *words).splitlines()[-EVENTS:]
        except ClusterError as unanswered:
            lines.append(str(unanswered))
    return "\n".join(lines)


def _helm(cluster: Cluster, *words: str) -> str:
    return run([cluster.helm, f"--kubeconfig={cluster.kubeconfig}", *words], timeout_seconds=HELM_SECONDS)
