"""How a revision of a pool looks as a Deployment: restricted pods, our environment, the user's additions."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from activity_operator.api.pod_own import HEALTH_PORT_NAME, REPORT_DIR, TMP_DIR, VOLUME_PREFIX, WORKER_CONTAINER
from activity_operator.api.spec import PoolSpec
from activity_operator.core.observation import PoolFacts
from activity_operator.core.source_environment import literal, source_environment, source_parts
from activity_worker.contract import LABEL_POOL, LABEL_REVISION, TOKEN_AUDIENCE, Env

GENERATION = "activitypools.dev/generation"
CA_CONFIG_MAP = "activitypool-ca"
REPORT_VOLUME, TMP_VOLUME = f"{VOLUME_PREFIX}report", f"{VOLUME_PREFIX}tmp"
HEALTH_PORT = 8081
#: Seconds by which the pod's grace exceeds the drain's: an open poll (60 s) and the last conclusions.
GRACE_MARGIN_SECONDS = 80
#: Seconds for which nobody asks whether a worker is alive: where a hundred pods start on a node at once, a container's
#: first process has taken more than a minute to listen, and killing it made the next one slower still.
START_SECONDS = 120
#: Seconds for which a reporting token is valid; the kubelet renews it.
TOKEN_SECONDS = 3600

#: What the restricted Pod Security Standard wants every container to say.
_RESTRICTED: dict[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_CONTAINER_SECURITY: dict[str, Any] = {**_RESTRICTED, "readOnlyRootFilesystem": True}
_POD_SECURITY: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


#: Lists whose entries are told apart by a field, as the API server merges them; in every other list ours come first.
_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "name",
    "volumeMounts": "mountPath",
}


def merged(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return ours with theirs added: mappings merge deeply, named list entries by name, and on a clash ours wins."""
    result: dict[str, Any] = dict(theirs)
    for name, value in ours.items():
        other = theirs.get(name)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            result[name] = merged(other, value)
        elif isinstance(value, list) and isinstance(other, list) and name in _KEYS:
            result[name] = _merged_list(other, value, _KEYS[name])
        else:
            result[name] = value
    return result


def _merged_list(theirs: list[Any], ours: list[Any], key: str) -> list[Any]:
    named = {name: item for item in theirs if (name := _name(item, key)) is not None}
    our_names = {_name(item, key) for item in ours}
    together = [merged(named[item[key]], item) if item.get(key) in named else item for item in ours]
    return together + [item for item in theirs if _name(item, key) is None or item[key] not in our_names]


def _name(item: Any, key: str) -> str | None:
    """Return by what an entry is told from others; None when by nothing: the API server judges what it is."""
    name = item.get(key) if isinstance(item, Mapping) else None
    return name if isinstance(name, str) else None


@dataclass(frozen=True, slots=True)
class RenderSettings:
    """What every rendering of this operator shares: where workers report to."""

    report_url: str


def revision_of(spec: PoolSpec) -> str:
    """Return the name of the spec's template revision: 8 hex characters over what a pod is made of, not its number."""
    parts = {
        "arn": spec.arn,
        "image": spec.handler_image,
        "slots": spec.slots_per_worker,
        "heartbeat": spec.task_heartbeat.interval_seconds,
        "deadline": spec.task_deadline_seconds,
        "drain": spec.drain.timeout_seconds,
        "region": spec.aws.region,
        "endpoint": spec.aws.endpoint_url,
        "account": spec.service_account_name,
        "template": spec.pod_template,
    }
    if spec.source_kind != "stepFunctions":
        # Not among the rest: the names of revisions that run already must stay what they are.
        parts["source"] = source_parts(spec)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:8]


def deployment_name(pool: PoolFacts, revision: str) -> str:
    """Return the name of a revision's Deployment."""
    return f"{pool.name}-{revision}"


def selector(pool: PoolFacts) -> str:
    """Return the label selector of the pool's pods, for /scale."""
    return f"{LABEL_POOL}={pool.name}"


def render(settings: RenderSettings, spec: PoolSpec, pool: PoolFacts, replicas: int) -> dict[str, Any]:
    """Return the Deployment of the spec's own revision, as it is applied."""
    return deployment(spec, pool, settings, revision_of(spec), replicas)


def deployment(
    spec: PoolSpec, pool: PoolFacts, settings: RenderSettings, revision: str, replicas: int
) -> dict[str, Any]:
    """Return the whole Deployment for server-side apply."""
    labels = {LABEL_POOL: pool.name, LABEL_REVISION: revision}
    extra = spec.pod_template.get("metadata") or {}
    owner = {
        "apiVersion": "activitypools.dev/v1alpha1",
        "kind": "ActivityPool",
        "name": pool.name,
        "uid": pool.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": deployment_name(pool, revision),
            "namespace": pool.namespace,
            "labels": labels,
            "annotations": {GENERATION: str(pool.generation)},
            "ownerReferences": [owner],
        },
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {
                "metadata": {
                    "labels": {**(extra.get("labels") or {}), **labels},
                    "annotations": dict(extra.get("annotations") or {}),
                },
                "spec": _restricted(merged(spec.pod_template.get("spec") or {}, _pod(spec, pool, settings))),
            },
        },
    }


def _restricted(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the pod with what its other containers must say to be admitted where only restricted pods are."""
    for kind in ("initContainers", "containers"):
        if isinstance(pod.get(kind), list):
            pod[kind] = [
                merged(one, {"securityContext": _RESTRICTED}) if isinstance(one, Mapping) else one for one in pod[kind]
            ]
    return pod


def _pod(spec: PoolSpec, pool: PoolFacts, settings: RenderSettings) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": spec.drain.timeout_seconds + GRACE_MARGIN_SECONDS,
        "securityContext": _POD_SECURITY,
        "containers": [_worker(spec, pool, settings)],
        "volumes": [
            {"name": REPORT_VOLUME, "projected": {"sources": _report_sources()}},
            {"name": TMP_VOLUME, "emptyDir": {}},
        ],
    }
    if spec.service_account_name is not None:
        pod["serviceAccountName"] = spec.service_account_name
    return pod


def _report_sources() -> list[dict[str, Any]]:
    token = {"audience": TOKEN_AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    return [{"serviceAccountToken": token}, {"configMap": {"name": CA_CONFIG_MAP, "optional": True}}]


def _worker(spec: PoolSpec, pool: PoolFacts, settings: RenderSettings) -> dict[str, Any]:
    return {
        "name": WORKER_CONTAINER,
        "image": spec.handler_image,
        "imagePullPolicy": "IfNotPresent",
        "env": _environment(spec, pool, settings),
        "ports": [{"name": HEALTH_PORT_NAME, "containerPort": HEALTH_PORT, "protocol": "TCP"}],
        "livenessProbe": _probe(
            "/livez", initialDelaySeconds=START_SECONDS, periodSeconds=10, failureThreshold=6, timeoutSeconds=5
        ),
        "readinessProbe": _probe("/readyz", periodSeconds=2, failureThreshold=1, timeoutSeconds=2),
        "securityContext": _CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": REPORT_VOLUME, "mountPath": REPORT_DIR, "readOnly": True},
            {"name": TMP_VOLUME, "mountPath": TMP_DIR},
        ],
    }


def _probe(path: str, **timing: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": HEALTH_PORT_NAME}, **timing}


def _environment(spec: PoolSpec, pool: PoolFacts, settings: RenderSettings) -> list[dict[str, Any]]:
    plain: Mapping[Env, Any] = {
        Env.TASK_HEARTBEAT_SECONDS: spec.task_heartbeat.interval_seconds,
        Env.TASK_DEADLINE_SECONDS: spec.task_deadline_seconds,
        Env.DRAIN_TIMEOUT_SECONDS: spec.drain.timeout_seconds,
        Env.POOL: pool.name,
        Env.REPORT_URL: settings.report_url,
        Env.REPORT_TOKEN_FILE: f"{REPORT_DIR}/token",
        Env.REPORT_CA_FILE: f"{REPORT_DIR}/ca.crt",
        Env.HEALTH_PORT: HEALTH_PORT,
    }
    fields = {
        Env.POD_NAMESPACE: "metadata.namespace",
        Env.POD_NAME: "metadata.name",
        Env.POD_UID: "metadata.uid",
    }
    given = [{"name": str(name), "value": literal(str(value))} for name, value in plain.items() if value is not None]
    asked = [{"name": str(name), "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    first, *rest = source_environment(spec)
    slots = {"name": str(Env.SLOTS), "value": str(spec.slots_per_worker)}
    # In the order of the first version: another one would be another pod template to those that run.
    return [first, slots, *rest, *given, *asked]
