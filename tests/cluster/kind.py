"""The cluster by kind, where a Docker engine answers, with the same guarantees."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cluster import go_builds, image_key, paths
from tests.cluster.cluster import Cluster
from tests.cluster.control_plane import AUDIT_POLICY
from tests.cluster.emulator_ports import NODE_PORTS
from tests.cluster.image_key import Recipe
from tests.cluster.progress import step
from tests.cluster.shell import ClusterError, MissingError, run, succeeds, wait_until

NAME = "activitypool"
READY_SECONDS = 120.0
KEY_LABEL = "dev.activitypools.key"  # on every image that is built here: its content key
AUDIT_IN_NODE = "/var/log/activitypool"
API_SERVER_PATCH = f"""\
kind: ClusterConfiguration
apiServer:
  extraArgs:
    enable-aggregator-routing: "true"
    audit-policy-file: {AUDIT_IN_NODE}/policy.yaml
    audit-log-path: {AUDIT_IN_NODE}/audit.log
    audit-log-maxsize: "1000"
  extraVolumes:
    - name: audit
      hostPath: {AUDIT_IN_NODE}
      mountPath: {AUDIT_IN_NODE}
      pathType: Directory
"""
KUBELET_PATCH = "kind: KubeletConfiguration\nmaxPods: 250\n"


def up() -> Cluster:
    """Create the kind cluster, or find it well. Raises ClusterError with kind's last lines."""
    binaries = go_builds.find(["kind", "kubectl", "helm"])
    kubeconfig, audit = paths.kubeconfig(), _audit_folder()
    if NAME not in run([binaries["kind"], "get", "clusters"]).split():
        audit.mkdir(parents=True, exist_ok=True)
        (audit / "policy.yaml").write_text(AUDIT_POLICY)
        # Made here, so that it belongs to this user: the API server would make it readable by its root only.
        (audit / "audit.log").touch(mode=0o666)
        with step("kind create cluster"):
            create: list[str | Path] = [binaries["kind"], "create", "cluster", "--name", NAME, "--wait", "120s"]
            run([*create, "--kubeconfig", kubeconfig, "--config", "-"], stdin=json.dumps(_config(audit)))
    else:
        run(["docker", "start", f"{NAME}-control-plane"])  # the node stops with the engine, and is started again here
        run([binaries["kind"], "export", "kubeconfig", "--name", NAME, "--kubeconfig", kubeconfig])
    kubectl: list[str | Path] = [binaries["kubectl"], f"--kubeconfig={kubeconfig}"]
    ready = [*kubectl, "get", "--raw", "/readyz"]
    wait_until(lambda: succeeds(ready), "kind's API server is ready", timeout_seconds=READY_SECONDS)
    run([*kubectl, "wait", "--for=condition=Ready", "node", "--all", f"--timeout={READY_SECONDS:.0f}s"])
    return Cluster(
        kubeconfig=kubeconfig,
        audit_log=audit / "audit.log",
        kubectl=binaries["kubectl"],
        helm=binaries["helm"],
        kind="kind",
        host_ip=_gateway(),
    )


def down() -> None:
    """Delete the kind cluster and its state."""
    kind = go_builds.find(["kind"])["kind"]
    run([kind, "delete", "cluster", "--name", NAME, "--kubeconfig", paths.kubeconfig()])
    shutil.rmtree(paths.run(), ignore_errors=True)
    paths.kubeconfig().unlink(missing_ok=True)


def is_well(cluster: Cluster) -> bool:
    """Whether the API server says it is ready."""
    return succeeds([cluster.kubectl, f"--kubeconfig={cluster.kubeconfig}", "get", "--raw", "/readyz"])


def key(recipe: Recipe) -> str:
    """The content key of an image on the Dockerfile's own base."""
    return image_key.of(recipe)


def find(recipe: Recipe) -> None:
    """Raise MissingError unless the Docker engine has the image, built from the present files."""
    wanted = key(recipe)
    ask = ["docker", "image", "inspect", "--format", f'{{{{index .Config.Labels "{KEY_LABEL}"}}}}', recipe.tag]
    try:
        labelled = run(ask).strip()
    except ClusterError:
        labelled = ""
    if labelled != wanted:
        raise MissingError(f"the image {recipe.tag} is not built from the files as they are now")


def load(tag: str) -> None:
    """Copy an image from the engine into the node."""
    with step(f"loading {tag}"):
        run([go_builds.find(["kind"])["kind"], "load", "docker-image", tag, "--name", NAME])


def _config(audit: Path) -> dict[str, object]:
    ports = [{"containerPort": port, "hostPort": port, "listenAddress": "127.0.0.1"} for port in NODE_PORTS.values()]
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "kubeadmConfigPatches": [API_SERVER_PATCH, KUBELET_PATCH],
        "nodes": [
            {
                "role": "control-plane",
                "extraMounts": [{"hostPath": str(audit), "containerPath": AUDIT_IN_NODE}],
                "extraPortMappings": ports,
            }
        ],
    }


def _gateway() -> str:
    """The IPv4 address at which containers of kind's network reach this machine."""
    networks = json.loads(run(["docker", "network", "inspect", "kind"]))
    gateways = [str(part.get("Gateway", "")) for part in networks[0]["IPAM"]["Config"]]
    return next((address for address in gateways if address and ":" not in address), "host.docker.internal")


def _audit_folder() -> Path:
    return paths.run() / "kind-audit"
