"""Starting an emulator: load its image, apply its objects, wait until it answers a Step Functions call."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import catalogue
from tests.cluster.cluster import Cluster
from tests.cluster.emulator_ports import NODE_PORTS, PORT, EmulatorName
from tests.cluster.emulators import manifest
from tests.cluster.lifecycle import find_image, load_image
from tests.cluster.progress import step
from tests.cluster.shell import ClusterError, run, wait_until

START_SECONDS = 600.0
# Emulators route by the service name in the signature's scope; they check nothing else of the signature.
UNSIGNED = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/states/aws4_request, SignedHeaders=host, Signature=none"


@dataclass(frozen=True)
class Emulator:
    """A running emulator: its URL for pods, and its URL for this machine. Any credentials are accepted."""

    name: EmulatorName
    in_cluster_url: str
    host_url: str


def ensure_emulator(cluster: Cluster, name: EmulatorName) -> Emulator:
    """Return the emulator, running and answering; a second call keeps its state.

    Raises MissingError when its image is not built, and ClusterError when it does not answer within ten minutes.
    """
    image = find_image(catalogue.emulator(name))
    load_image(image)
    kubectl: list[str | Path] = [cluster.kubectl, f"--kubeconfig={cluster.kubeconfig}"]
    with step(f"emulator {name}"):
        objects = json.dumps(manifest.objects(name, image.tag, image.key))
        run([*kubectl, "apply", "--server-side", "--force-conflicts", "-f", "-"], stdin=objects)
        here: list[str | Path] = [*kubectl, "--namespace", manifest.NAMESPACE]
        _roll_out(here, name)
        emulator = Emulator(
            name=name,
            in_cluster_url=f"http://{name}.{manifest.NAMESPACE}.svc:{PORT}",
            host_url=_host_url(cluster, name, here),
        )
        wait_until(lambda: _answers(emulator.host_url), f"{name} answers", timeout_seconds=START_SECONDS)
    return emulator


def _roll_out(kubectl: list[str | Path], name: EmulatorName) -> None:
    try:
        run([*kubectl, "rollout", "status", f"deployment/{name}", f"--timeout={START_SECONDS:.0f}s"])
    except ClusterError as late:
        lines = run([*kubectl, "logs", f"--selector=app={name}", "--tail=15", "--ignore-errors"])
        raise ClusterError(f"{late}\n--- {name}\n{lines}") from late


def _host_url(cluster: Cluster, name: EmulatorName, kubectl: list[str | Path]) -> str:
    if cluster.kind == "kind":
        return f"http://127.0.0.1:{NODE_PORTS[name]}"
    address = run([*kubectl, "get", "service", name, "--output=jsonpath={.spec.clusterIP}"])
    return f"http://{address}:{PORT}"


def _answers(url: str) -> bool:
    headers = {
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": "AWSStepFunctions.ListActivities",
        "Authorization": UNSIGNED,
    }
    request = urllib.request.Request(url, data=b"{}", headers=headers, method="POST")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as answer:
            return "activities" in json.loads(answer.read())
    except (urllib.error.URLError, OSError, ValueError):
        return False
