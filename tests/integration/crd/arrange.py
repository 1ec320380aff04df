"""Helpers for the tests of the CRD: pools, and a kubectl for a real API server."""

import json
import subprocess
import time
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.control_plane import ControlPlane
from tests.unit.activity_operator.api.arn_cases import GOOD_ARN

CRD_FILE = Path(__file__).parents[3] / "crds" / "activitypools.activitypools.dev.yaml"
CRD_NAME = "activitypools.activitypools.dev"

MINIMAL: dict[str, Any] = {
    "activityArn": GOOD_ARN,
    "handlerImage": "registry.example.com/resize:1.4.2",
    "maxWorkers": 5,
}


def pool(name: str = "resize-images", **changes: Any) -> dict[str, Any]:
    """Return the smallest valid pool with these changes to its spec; a change to None removes the field."""
    spec = {field: value for field, value in {**MINIMAL, **changes}.items() if value is not None}
    return {
        "apiVersion": "activitypools.dev/v1alpha1",
        "kind": "ActivityPool",
        "metadata": {"name": name},
        "spec": spec,
    }


@dataclass(frozen=True)
class Answer:
    """Exit code and output of kubectl."""

    ok: bool
    out: str
    err: str

    def object(self) -> dict[str, Any]:
        """Return the object that kubectl printed as JSON. Fails the test when kubectl failed."""
        assert self.ok, self.err
        parsed: dict[str, Any] = json.loads(self.out)
        return parsed


@dataclass(frozen=True)
class Kubectl:
    """kubectl for one control plane, in one namespace."""

    plane: ControlPlane
    kubeconfig: Path
    namespace: str = "default"

    def __call__(self, *arguments: str, stdin: str | None = None) -> Answer:
        """Run kubectl and return its answer, also when it failed."""
        command = [
            str(self.plane.kubectl),
            "--kubeconfig",
            str(self.kubeconfig),
            "--namespace",
            self.namespace,
            *arguments,
        ]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        return Answer(done.returncode == 0, done.stdout, done.stderr)

    def dry_run(self, manifest: dict[str, Any]) -> Answer:
        """Send a pool to the API server as a dry run.

        This bypasses kubectl, whose start takes longer than the rest of such a test.
        """
        path = f"/apis/activitypools.dev/v1alpha1/namespaces/{self.namespace}/activitypools"
        query = "?dryRun=All&fieldValidation=Strict&fieldManager=kubectl"
        body, method, name = manifest, "POST", manifest["metadata"]["name"]
        status, stored = self.plane.send("GET", f"{path}/{urllib.parse.quote(name)}")
        if status == 200:
            version = json.loads(stored)["metadata"]["resourceVersion"]
            body = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": version}}
            method, path = "PUT", f"{path}/{name}"
        status, text = self.plane.send(method, path + query, body)
        message = "" if status < 300 else json.loads(text)["message"]
        return Answer(status < 300, text, message)

    def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Store a pool and return it. Fails the test when it is refused."""
        return self("apply", "-o", "json", "-f", "-", stdin=json.dumps(manifest)).object()

    def install_crd(self) -> None:
        """Install this tree's CRD, and wait until the API server enforces its rules."""
        applied = self("apply", "--server-side", "-f", str(CRD_FILE))
        assert applied.ok, applied.err
        waited = self("wait", "--for=condition=Established", f"crd/{CRD_NAME}", "--timeout=30s")
        assert waited.ok, waited.err
        deadline = time.monotonic() + 30
        # The condition "Established" is True before the rules are enforced.
        while self.dry_run(pool(minWorkers=6)).ok or not self.dry_run(pool()).ok:
            assert time.monotonic() < deadline, "the API server does not serve this tree's CRD"
