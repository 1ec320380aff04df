"""The stage of the end-to-end tests: images, the operator installed with Helm, an emulator, and a client for it."""

import fcntl
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import boto3
from botocore.config import Config
from botocore.exceptions import ConnectionError as NotConnectedError
from botocore.exceptions import HTTPClientError

from activity_worker.contract import LABEL_POOL
from tests.cluster import Cluster, ClusterError, catalogue, current, find_image, load_image, places, probe, up
from tests.cluster.emulators import Emulator, ensure_emulator
from tests.cluster.progress import say, step
from tests.cluster.shell import run
from tests.e2e.executions import Executions

ROOT = Path(__file__).parents[2]
SYSTEM = "activitypool-system"
SHORT = {"scaleDown": {"stabilizationWindowSeconds": 5, "zeroAfterSeconds": 10}}  # a pool's `scaling`, for a test
CREDENTIALS = [{"name": "AWS_ACCESS_KEY_ID", "value": "test"}, {"name": "AWS_SECRET_ACCESS_KEY", "value": "test"}]
# Pods that request no CPU at all share one five-hundredth of a busy node, and a hundred of them never get to start.
RESOURCES = {"requests": {"cpu": "20m"}}
#: Of kubectl, and of an emulator's client: on a machine that stalls, no answer for now.
UNANSWERED = (ClusterError, NotConnectedError, HTTPClientError)
#: Seconds for an installation, and for the command that waits so long.
INSTALL_SECONDS, HELM_SECONDS = 600, 660


@dataclass(frozen=True)
class Stage:
    """What a test plays on: `handler` is the image of `handler.py` on today's runtime."""

    cluster: Cluster
    emulator: Emulator
    handler: str
    states: Any

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator; returns its output."""
        return probe.kubectl(self.cluster, *words, stdin=stdin)

    def pool(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the pool as the API server has it."""
        return cast(
            "dict[str, Any]", json.loads(self.kubectl("get", "activitypool", name, "-n", namespace, "-o", "json"))
        )

    def apply_pool(self, namespace: str, name: str, arn: str, **spec: Any) -> None:
        """Apply a pool on the emulator, with the windows that the test gives."""
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
        probe.apply(self.cluster, body)

    def condition(self, namespace: str, name: str, kind: str) -> dict[str, str]:
        """Return a condition of a pool; each field is "" while the pool has none of this type."""
        return condition_of(self.pool(namespace, name).get("status", {}), kind)

    def workers(self, namespace: str, name: str) -> list[dict[str, Any]]:
        """Return the pods of a pool, those that are going left out."""
        found = json.loads(self.kubectl("get", "pods", "-n", namespace, "-l", f"{LABEL_POOL}={name}", "-o", "json"))
        return [pod for pod in found["items"] if "deletionTimestamp" not in pod["metadata"]]

    def events(self, namespace: str, name: str) -> list[tuple[str, str]]:
        """Return reason and message of every Kubernetes Event about a pool, oldest first."""
        about = f"involvedObject.kind=ActivityPool,involvedObject.name={name}"
        words = ("get", "events", "-n", namespace, "--field-selector", about, "--sort-by=.lastTimestamp", "-o", "json")
        return [(event["reason"], event["message"]) for event in json.loads(self.kubectl(*words))["items"]]

    def machine(self, name: str, **task: Any) -> Executions:
        """Create an activity and a state machine of one task of it that retries; `task` adds to the state."""
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


def condition_of(status: dict[str, Any], kind: str) -> dict[str, str]:
    """Return a condition of a pool's status; each field is "" while there is none of this type."""
    none = {"type": kind, "status": "", "reason": "", "message": ""}
    return next((found for found in status.get("conditions", ()) if found["type"] == kind), none)


def set_up() -> Stage:
    """Bring up the cluster, install today's operator and give the stage; what is there already is found so.

    Several test processes share one stage: the first sets it up while the others wait.
    """
    places.cluster().mkdir(parents=True, exist_ok=True)
    with (places.cluster() / "stage.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another command that sets the same stage")
            fcntl.flock(lock, fcntl.LOCK_EX)
        return _set_up()


def _set_up() -> Stage:
    cluster = up()
    operator, handler = find_image(catalogue.operator()), find_image(catalogue.handler())
    for image in (operator, handler):
        load_image(image)
    _install(cluster, operator.key)
    emulator = ensure_emulator(cluster, "localemu")
    return Stage(cluster, emulator, handler.tag, client(emulator))


def client(emulator: Emulator, **config: Any) -> Any:
    """Return a Step Functions client for the emulator; `config` is botocore's, with 3 attempts unless it says more."""
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

    Raises ClusterError when that cannot be told: a cluster that does not answer is no cluster without an operator.
    """
    try:
        _helm(cluster, "status", "activity-operator", "-n", SYSTEM)
    except ClusterError as error:
        if "release: not found" in str(error):
            return False
        raise
    return True


def tear_down() -> None:
    """Uninstall the operator and its CRD where they are, so that the other suites find the cluster as it was."""
    cluster = current()
    if cluster is None or not is_installed(cluster):
        return
    _helm(cluster, "uninstall", "activity-operator", "-n", SYSTEM, "--wait")
    probe.kubectl(cluster, "delete", "crd", "activitypools.activitypools.dev", "--wait")
    probe.kubectl(cluster, "delete", "namespace", SYSTEM, "--wait=false")


def wait_for(what: str, holds: Callable[[], bool], seconds: float) -> None:
    """Ask twice a second until it holds; AssertionError naming `what` when it does not in time.

    No answer is not the end of it: it is asked again, and the last failure to get one is told if it never holds.
    """
    end = time.monotonic() + seconds
    unanswered: Exception | None = None
    while True:
        try:
            if holds():
                return
        except UNANSWERED as error:
            unanswered = error
        if time.monotonic() >= end:
            last = "" if unanswered is None else f"; the last failure to ask: {unanswered}"
            raise AssertionError(f"not within {seconds:.0f} s: {what}{last}") from unanswered
        time.sleep(0.5)


def _install(cluster: Cluster, key: str) -> None:
    values = {
        "image": {"repository": "activity-operator", "tag": "dev", "pullPolicy": "IfNotPresent"},
        "podAnnotations": {"build": key},
        "extraEnv": CREDENTIALS,
        "stopSeconds": 65,
        "tenancy": {"rules": [{"namespaces": ["*"], "endpointUrls": ["*"]}]},
        "log": {"level": "DEBUG", "format": "text"},
    }
    given = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    chart = str(ROOT / "charts" / "activity-operator")
    with step("helm upgrade --install activity-operator"):
        _helm(
            cluster, "upgrade", "--install", "activity-operator", chart, "-n", SYSTEM, "--create-namespace", *given,
            "--wait", f"--timeout={INSTALL_SECONDS}s",
        )  # fmt: skip


def _helm(cluster: Cluster, *words: str) -> str:
    return run([cluster.helm, f"--kubeconfig={cluster.kubeconfig}", *words], timeout_seconds=HELM_SECONDS)
