"""The Deployment of a pool's revision: restricted pods, the worker's environment, the user's pod template."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from activity_operator.api.pod_own import HEALTH_PORT_NAME, REPORT_DIR, TMP_DIR, VOLUME_PREFIX, WORKER_CONTAINER
from activity_operator.api.spec import PoolSpec
from activity_operator.core.observation import PoolFacts
from activity_operator.core.source_environment import changed_fields, literal, source_environment, source_parts
from activity_worker.contract import LABEL_POOL, LABEL_REVISION, TOKEN_AUDIENCE, Env, pod_grace_seconds

#: Annotation of a Deployment: the generation of the pool for which it was applied last.
GENERATION = "activitypools.dev/generation"
CA_CONFIG_MAP = "activitypool-ca"
REPORT_VOLUME, TMP_VOLUME = f"{VOLUME_PREFIX}report", f"{VOLUME_PREFIX}tmp"
HEALTH_PORT = 8081
#: Seconds before the first liveness probe. With a hundred pods starting on one node at once, a container's first
#: process took more than a minute to listen; killing it made the next one even slower.
START_SECONDS = 120
#: Seconds for which a reporting token is valid; the kubelet renews it.
TOKEN_SECONDS = 3600

#: What the restricted Pod Security Standard requires of every container.
_RESTRICTED: dict[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_CONTAINER_SECURITY: dict[str, Any] = {**_RESTRICTED, "readOnlyRootFilesystem": True}
_POD_SECURITY: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


#: Merge keys of the lists that the API server merges by a field. In every other list ours replaces theirs.
_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "name",
    "volumeMounts": "mountPath",
}


def merged(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return `theirs` merged into `ours`: mappings deeply, lists with a merge key by that key. On a clash ours wins."""
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
    """Return the value of the entry's merge key, or None. The API server judges entries without a valid one."""
    name = item.get(key) if isinstance(item, Mapping) else None
    return name if isinstance(name, str) else None


@dataclass(frozen=True, slots=True)
class RenderSettings:
    """What all Deployments of this operator share: the URL to which workers send reports."""

    report_url: str


def revision_of(spec: PoolSpec) -> str:
    """Return the name of the spec's template revision: 8 hex characters of a hash of the fields that make up a pod."""
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
    for name, part in (("logging", spec.logging), ("handler", spec.handler), ("polling", spec.polling)):
        # Defaults are left out: the revisions of pools that are older than these fields keep their names.
        if changed := changed_fields(part):
            parts[name] = changed
    if spec.source_kind != "stepFunctions":
        # Only for the other sources: the revisions of existing Step Functions pools must keep their names.
        parts["source"] = source_parts(spec)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:8]


def deployment_name(pool: PoolFacts, revision: str) -> str:
    """Return the name of a revision's Deployment."""
    return f"{pool.name}-{revision}"


def selector(pool: PoolFacts) -> str:
    """Return the label selector of the pool's pods, for the scale subresource."""
    return f"{LABEL_POOL}={pool.name}"


def render(settings: RenderSettings, spec: PoolSpec, pool: PoolFacts, replicas: int) -> dict[str, Any]:
    """Return the Deployment of the spec's own revision, for server-side apply."""
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
    """Return the pod with the securityContext that the restricted Pod Security Standard requires of all containers."""
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
        "terminationGracePeriodSeconds": int(
            pod_grace_seconds(spec.drain.timeout_seconds, spec.handler.cancel_grace_seconds)
        ),
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


#: Variables by the fields of `spec.logging`, `spec.handler` and `spec.polling`.
_LOGGING = {"level": Env.LOG_LEVEL, "format": Env.LOG_FORMAT, "failures": Env.LOG_FAILURES}
_HANDLER = {"on_error": Env.ON_ERROR, "cancel_grace_seconds": Env.CANCEL_GRACE_SECONDS}
_POLLING = {"failure_threshold": Env.POLL_ATTEMPTS, "max_pause_seconds": Env.POLL_MAX_PAUSE_SECONDS}


def _options(spec: PoolSpec) -> Mapping[Env, str]:
    """Return the variables that differ from the worker's own defaults: more of them would be another pod template."""
    parts = ((spec.logging, _LOGGING), (spec.handler, _HANDLER), (spec.polling, _POLLING))
    return {names[field]: str(value).lower() for part, names in parts for field, value in changed_fields(part).items()}


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
        **_options(spec),
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
    # Keep this order: another order is another pod template and would replace every running worker.
    return [first, slots, *rest, *given, *asked]
