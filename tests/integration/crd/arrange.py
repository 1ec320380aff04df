"""What the tests of the CRD are made with: pools to send, and a kubectl that sends them to a real API server."""

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.unit.activity_operator.api.arn_cases import GOOD_ARN

CRD_FILE = Path(__file__).parents[3] / "crds" / "activitypools.activitypools.dev.yaml"
CRD_NAME = "activitypools.activitypools.dev"

MINIMAL: dict[str, Any] = {
    "activityArn": GOOD_ARN,
    "handlerImage": "registry.example.com/resize:1.4.2",
    "maxWorkers": 5,
}


def pool(name: str = "resize-images", **changes: Any) -> dict[str, Any]:
    """Return the smallest good pool with these changes to its spec; a change to None takes the field away."""
    spec = {field: value for field, value in {**MINIMAL, **changes}.items() if value is not None}
    return {
        "apiVersion": "activitypools.dev/v1alpha1",
        "kind": "ActivityPool",
        "metadata": {"name": name},
        "spec": spec,
    }


@dataclass(frozen=True)
class Answer:
    """What kubectl said."""

    ok: bool
    out: str
    err: str

    def object(self) -> dict[str, Any]:
        """Return the object that was printed as JSON. Fails the test when kubectl failed."""
        assert self.ok, self.err
        parsed: dict[str, Any] = json.loads(self.out)
        return parsed


@dataclass(frozen=True)
class Kubectl:
    """kubectl of the local cluster, in one namespace."""

    program: Path
    kubeconfig: Path
    namespace: str = "default"

    def __call__(self, *arguments: str, stdin: str | None = None) -> Answer:
        """Run kubectl and return what it said, also when it failed."""
        command = [str(self.program), "--kubeconfig", str(self.kubeconfig), "--namespace", self.namespace, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        return Answer(done.returncode == 0, done.stdout, done.stderr)

    def dry_run(self, manifest: dict[str, Any]) -> Answer:
        """Send a pool to the API server, which says what it would store, or why not."""
        return self("apply", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(manifest))

    def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Store a pool and return it. Fails the test when it is refused."""
        return self("apply", "-o", "json", "-f", "-", stdin=json.dumps(manifest)).object()

    def install_crd(self) -> None:
        """Install this tree's CRD, also over an older one, and wait until the API server serves exactly it."""
        applied = self("apply", "--server-side", "--force-conflicts", "-f", str(CRD_FILE))
        assert applied.ok, applied.err
        self._disown_crd()
        waited = self("wait", "--for=condition=Established", f"crd/{CRD_NAME}", "--timeout=30s")
        assert waited.ok, waited.err
        deadline = time.monotonic() + 30
        # "Established" may be of the former version: what counts is that an edge of the new rules is felt.
        while self.dry_run(pool(minWorkers=6)).ok or not self.dry_run(pool()).ok:
            assert time.monotonic() < deadline, "the API server does not serve this tree's CRD"

    def _disown_crd(self) -> None:
        """Own none of its fields: Helm, where it has installed the CRD, refuses to change what is another's."""
        shown = self("get", "crd", CRD_NAME, "-o", "json", "--show-managed-fields").object()
        others = [entry for entry in shown["metadata"]["managedFields"] if entry["manager"] != "kubectl"]
        patch = [{"op": "replace", "path": "/metadata/managedFields", "value": others or [{}]}]
        disowned = self("patch", "crd", CRD_NAME, "--type=json", "-p", json.dumps(patch))
        assert disowned.ok, disowned.err
