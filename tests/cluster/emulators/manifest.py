"""An emulator's objects: Namespace, Deployment, Service. Restricted pods, like ours."""

from __future__ import annotations

from typing import Any

from tests.cluster.emulator_ports import NODE_PORTS, PORT, EmulatorName

NAMESPACE = "aws-emulator"
MEMORY_LIMIT = "2Gi"
#: Seconds for which LocalEmu holds an empty poll in the cluster (AWS: 60); localemu/mend.sh reads it.
POLL_SECONDS = 20
RUN_AS = 65532


def objects(name: EmulatorName, image: str, image_key: str) -> dict[str, Any]:
    """The List to apply. State is in memory: a new pod starts empty, and another `image_key` makes a new pod."""
    items = [_namespace(), _deployment(name, image, image_key), _service(name)]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _namespace() -> dict[str, Any]:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def _deployment(name: EmulatorName, image: str, image_key: str) -> dict[str, Any]:
    labels, annotations = {"app": name}, {"activitypools.dev/image-key": image_key}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": 1,
            # Two pods at once would be two separate states behind one Service.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": _pod(image)},
        },
    }


def _pod(image: str) -> dict[str, Any]:
    container = {
        "name": "emulator",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "ACTIVITY_POLL_SECONDS", "value": str(POLL_SECONDS)}],
        "ports": [{"containerPort": PORT, "name": "aws"}],
        "readinessProbe": {"tcpSocket": {"port": "aws"}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": MEMORY_LIMIT}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    }
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # It has nothing to save, and LocalEmu may ignore SIGTERM for minutes.
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": RUN_AS,
            "runAsGroup": RUN_AS,
            "fsGroup": RUN_AS,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    }


def _service(name: EmulatorName) -> dict[str, Any]:
    port = {"name": "aws", "port": PORT, "targetPort": "aws", "nodePort": NODE_PORTS[name]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"type": "NodePort", "selector": {"app": name}, "ports": [port]},
    }
