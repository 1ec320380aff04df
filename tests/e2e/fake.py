"""A fake of a task service as a pod in a test's namespace: Step Functions' for faults, Amazon SWF's as the service."""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import boto3
from botocore.config import Config

from tests.e2e.harness import ClusterHarness
from tests.e2e.timeline import Moment
from tests.readiness import is_ready

PORT = 4566
#: Empty polls are short, so that a change takes effect at the next poll soon.
HOLD_SECONDS = 5


@dataclass(frozen=True)
class Fake:
    """A running fake; `harness` uses it as its emulator."""

    harness: ClusterHarness
    namespace: str
    name: str

    def inject(self, kind: str, operation: str) -> None:
        """Apply a fault to every call of an operation until `clear_faults`; kinds as in `activity_worker.testing`."""
        self._post("faults", {"operation": operation, "kind": kind, "times": None})

    def set(self, **settings: Any) -> None:
        """Change settings."""
        self._post("settings", settings)

    def clear_faults(self) -> None:
        """End all faults."""
        self.harness.kubectl("delete", "--raw", self._page("faults"))

    def _post(self, page: str, body: dict[str, Any]) -> None:
        self.harness.kubectl("create", "--raw", self._page(page), "-f", "-", stdin=json.dumps(body))

    def _page(self, page: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/services/{self.name}:{PORT}/proxy/_fake/{page}"


def url(namespace: str, name: str) -> str:
    """Return the URL of a Service with this name inside the cluster; the Service need not exist yet."""
    return f"http://{name}.{namespace}.svc:{PORT}"


@contextmanager
def fakes(harness: ClusterHarness, namespace: str, *names: str) -> Iterator[list[Fake]]:
    """Start fakes in the test's namespace, wait until they answer, and yield them."""
    for name in names:
        harness.apply(fake_pod(harness, namespace, name))
        serve(harness, namespace, name, name)
    forwards = []
    try:
        harness.timeline(namespace).eventually("the fakes are Ready", lambda moment: _are_ready(moment, names))
        running = []
        for name in names:
            forward, port = _forward(harness, namespace, name)
            forwards.append(forward)
            emulator = replace(
                harness.emulator, in_cluster_url=url(namespace, name), host_url=f"http://127.0.0.1:{port}"
            )
            running.append(Fake(replace(harness, emulator=emulator, states=_client(port)), namespace, name))
        yield running
    finally:
        for forward in forwards:
            forward.terminate()
            forward.wait()
            assert forward.stdout is not None
            forward.stdout.close()


def serve(harness: ClusterHarness, namespace: str, name: str, pod: str) -> None:
    """Create a Service of this name for a fake's pod."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"fake": pod}, "ports": [{"port": PORT}]},
    }
    harness.apply(service)


def _are_ready(moment: Moment, names: Sequence[str]) -> bool:
    return all(is_ready(moment.get("Pod", name)) for name in names)


def fake_pod(
    harness: ClusterHarness, namespace: str, name: str, *, service: str = "stepfunctions", flags: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the pod of a fake: `service` is its module in `activity_worker.testing`, `flags` are further ones."""
    container = {
        "name": "fake",
        "image": harness.handler,
        # The runtime's own Python, isolated from the handler's files, some of which have names of our modules.
        "command": ["/opt/activitypool/bin/python3", "-I", "-m", f"activity_worker.testing.{service}"],
        "args": ["--host", "0.0.0.0", "--port", str(PORT), "--poll-hold-seconds", str(HOLD_SECONDS), *flags],
        # Like the workers: a pod without a CPU request gets almost none on a busy node.
        "resources": {"requests": {"cpu": "100m"}},
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"fake": name}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        },
    }


def _forward(harness: ClusterHarness, namespace: str, name: str) -> tuple["subprocess.Popen[str]", int]:
    """Forward a local port, because not every cluster lets this machine reach a Service's address."""
    words = ["port-forward", "--address=127.0.0.1", "-n", namespace, f"pod/{name}", f":{PORT}"]
    argv = [str(harness.cluster.kubectl), f"--kubeconfig={harness.cluster.kubeconfig}", *words]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"127\.0\.0\.1:(\d+)", line)
    assert found, f"kubectl port-forward printed {line!r}"
    return process, int(found[1])


def _client(port: int) -> Any:
    return boto3.client(
        "stepfunctions",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"max_attempts": 3}),
    )
