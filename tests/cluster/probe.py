"""A web server as a Deployment with a Service, for the tests of the cluster itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster import Cluster, ClusterError, catalogue, find_image, load_image
from tests.cluster.shell import run
from tests.eventually import eventually_sync

IMAGE = catalogue.probe().tag
NAME = "web"


@contextmanager
def namespace(cluster: Cluster, name: str) -> Iterator[str]:
    """A restricted namespace of this name, empty at the start and deleted at the end."""
    kubectl(cluster, "delete", "namespace", name, "--ignore-not-found", "--wait")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    apply(cluster, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    try:
        yield name
    finally:
        if cluster.kubeconfig.exists():  # false when the test has stopped the cluster
            kubectl(cluster, "delete", "namespace", name, "--ignore-not-found", "--wait=false")


def end_workers(cluster: Cluster, where: str) -> None:
    """Delete a namespace's pools and their workers, after their tasks have ended or been abandoned.

    Kubernetes checks a namespace with terminating pods again only after half of their grace period, and a worker's is
    half an hour.
    """
    here = ("--namespace", where, "--all")
    kubectl(cluster, "delete", "activitypools", *here, "--timeout=30s")
    kubectl(cluster, "delete", "deployments,replicasets", *here, "--wait=false")
    kubectl(cluster, "delete", "pods", *here, "--grace-period=1", "--wait=false")


def deploy(cluster: Cluster, to: str, *, replicas: int = 1) -> None:
    """Load the image, apply Deployment and Service, and wait until every pod is Ready."""
    load_image(find_image(catalogue.probe()))
    apply(cluster, {"apiVersion": "v1", "kind": "List", "items": [_deployment(to, replicas), _service(to)]})
    wait_ready(cluster, to)


def wait_ready(cluster: Cluster, where: str) -> None:
    """Wait until every pod of the Deployment is Ready, at most 60 s."""
    kubectl(cluster, "--namespace", where, "rollout", "status", f"deployment/{NAME}", "--timeout=60s")


def in_pod(cluster: Cluster, where: str, python: str) -> str:
    """Run Python in a pod of the Deployment; return its output."""
    return kubectl(cluster, "--namespace", where, "exec", f"deployment/{NAME}", "--", "python3", "-c", python).strip()


def wait_served(cluster: Cluster, where: str, *urls: str) -> None:
    """Wait until each URL answers 200 to a pod of the Deployment.

    kube-proxy learns of a Service and of its pods at its own pace, which may be after the pods are Ready.
    """
    ask = f"import urllib.request as u; print(*(u.urlopen(url, timeout=10).status for url in {list(urls)!r}))"
    answers = " ".join("200" for _ in urls)
    eventually_sync(
        f"{', '.join(urls)} answers a pod", lambda: in_pod(cluster, where, ask) == answers, tolerate=(ClusterError,)
    )


def kubectl(cluster: Cluster, *words: str, stdin: str | None = None) -> str:
    """Run the cluster's kubectl as its administrator; returns its output."""
    argv: list[str | Path] = [cluster.kubectl, f"--kubeconfig={cluster.kubeconfig}", *words]
    return run(argv, stdin=stdin, timeout_seconds=90)


def apply(cluster: Cluster, document: dict[str, Any]) -> str:
    """Apply one object; return kubectl's output."""
    return kubectl(cluster, "apply", "--filename", "-", stdin=json.dumps(document))


def _deployment(namespace_name: str, replicas: int) -> dict[str, Any]:
    labels = {"app": NAME}
    container = {
        "name": NAME,
        "image": IMAGE,
        "readinessProbe": {"httpGet": {"port": 8080, "path": "/hostname"}, "periodSeconds": 1},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": namespace_name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _service(namespace_name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "namespace": namespace_name},
        "spec": {"selector": {"app": NAME}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
