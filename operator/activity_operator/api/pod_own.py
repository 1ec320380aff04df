"""The fields of a worker's pod that belong to the operator or the cluster. A template that sets one is refused.

Without this check the operator would silently overwrite the user's value, or the Deployment would have both values and
the API server would refuse it with a message about fields that the user did not write.
"""

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from activity_operator.api.pod_shape import Problem, containers, objects, part
from activity_worker.contract import Env
from activity_worker.contract.names import GROUP

#: The container that runs the handler.
WORKER_CONTAINER = "worker"
#: The directory with the token and the CA for reports, and the directory in which a worker may write.
REPORT_DIR = "/var/run/activitypool"
TMP_DIR = "/tmp"  # noqa: S108 - a private emptyDir in the pod
#: Prefix of the names of the operator's volumes.
VOLUME_PREFIX = "activitypool-"
HEALTH_PORT_NAME = "health"
#: The annotation by which the operator chooses the pods that a ReplicaSet removes first.
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
#: Environment variables of the contract that the user may set.
USERS_VARIABLES = frozenset({Env.HANDLER, Env.REGION, Env.ENDPOINT_URL})
OWN_VARIABLES = frozenset(map(str, frozenset(Env) - USERS_VARIABLES))
#: Allowed audiences of projected tokens, beside the operator's: AWS, for credentials of the ServiceAccount's role.
TOKEN_AUDIENCES = frozenset({"sts.amazonaws.com", "pods.eks.amazonaws.com"})
#: Prefix of the PriorityClasses for the cluster's own components.
SYSTEM_PRIORITY = "system-"

#: What to set instead of a variable that has a field.
_FIELDS = {
    str(variable): f"is the operator's; set spec.{field} instead"
    for variable, field in (
        (Env.LOG_LEVEL, "logging.level"),
        (Env.LOG_FORMAT, "logging.format"),
        (Env.LOG_FAILURES, "logging.failures"),
        (Env.ON_ERROR, "handler.onError"),
        (Env.CANCEL_GRACE_SECONDS, "handler.cancelGraceSeconds"),
        (Env.POLL_ATTEMPTS, "polling.failureThreshold"),
        (Env.POLL_MAX_PAUSE_SECONDS, "polling.maxPauseSeconds"),
        (Env.REDIS_BLOCK_SECONDS, "source.redis.blockSeconds"),
    )
}
_POD = {
    "activeDeadlineSeconds": "would kill workers at work; remove it (spec.taskDeadlineSeconds bounds one task)",
    "restartPolicy": "is the operator's; remove it (workers are restarted always)",
    "terminationGracePeriodSeconds": "is the operator's; set spec.drain.timeoutSeconds instead",
    "serviceAccountName": "is the operator's; set spec.serviceAccountName instead",
    "serviceAccount": "is the operator's; set spec.serviceAccountName instead",
    "nodeName": "would pass by the scheduler and its taints; use nodeSelector or affinity instead",
    "ephemeralContainers": "are for kubectl debug; remove them",
}
_FALSE = {
    "automountServiceAccountToken": "must be false: workers have no business with the API server; remove it",
    "enableServiceLinks": "is the operator's (false); remove it",
}
_WORKER = {
    "image": "is the operator's; set spec.handlerImage instead",
    "imagePullPolicy": "is the operator's (IfNotPresent); give another code another tag, or name it by its digest",
    "livenessProbe": "is the operator's; remove it",
    "readinessProbe": "is the operator's; remove it",
}


def own_problems(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the fields that the user must not set, as (path, value, fix)."""
    for kind in ("labels", "annotations"):
        for key in part(metadata, kind):
            if key.startswith(f"{GROUP}/") or key == DELETION_COST:
                yield f"metadata.{kind}", key, "is the operator's own; remove it"
    yield from _pod_problems(spec)
    yield from _volume_problems(spec)
    for path, container in containers(spec):
        if container.get("name") == WORKER_CONTAINER:
            yield from _worker_problems(path, container)


def _pod_problems(spec: Mapping[str, Any]) -> Iterator[Problem]:
    for field, fix in _POD.items():
        if spec.get(field) is not None:
            yield f"spec.{field}", spec[field], fix
    for field, fix in _FALSE.items():
        if spec.get(field):
            yield f"spec.{field}", spec[field], fix
    priority = spec.get("priorityClassName")
    if isinstance(priority, str) and priority.startswith(SYSTEM_PRIORITY):
        yield "spec.priorityClassName", priority, "is for the cluster's own parts; use a class of your own"
    profile = part(part(spec, "securityContext"), "seccompProfile").get("type")
    if profile not in (None, "RuntimeDefault"):
        fix = "is the operator's (RuntimeDefault); set another profile in the container's securityContext"
        yield "spec.securityContext.seccompProfile.type", profile, fix


def _volume_problems(spec: Mapping[str, Any]) -> Iterator[Problem]:
    for index, volume in enumerate(objects(spec, "volumes")):
        path = f"spec.volumes[{index}]"
        if str(volume.get("name")).startswith(VOLUME_PREFIX):
            yield f"{path}.name", volume["name"], f"is the operator's; names with {VOLUME_PREFIX} are its own"
        for number, source in enumerate(objects(part(volume, "projected"), "sources")):
            where = f"{path}.projected.sources[{number}]"
            if "podCertificate" in source:
                yield f"{where}.podCertificate", None, "would give the pod another identity; remove it"
            if "serviceAccountToken" in source:
                audience = part(source, "serviceAccountToken").get("audience")
                if not isinstance(audience, str) or audience not in TOKEN_AUDIENCES:
                    fix = f"must be one of {', '.join(sorted(TOKEN_AUDIENCES))}: a pod has no token for anything else"
                    yield f"{where}.serviceAccountToken.audience", audience, fix


def _worker_problems(path: str, container: Mapping[str, Any]) -> Iterator[Problem]:
    for field, fix in _WORKER.items():
        if container.get(field) is not None:
            value = container[field]
            yield f"{path}.{field}", None if isinstance(value, Mapping) else value, fix
    if part(container, "securityContext").get("readOnlyRootFilesystem") is False:
        fix = "is the operator's (true); mount an emptyDir where the handler writes"
        yield f"{path}.securityContext.readOnlyRootFilesystem", False, fix
    for index, variable in enumerate(objects(container, "env")):
        if (name := variable.get("name")) in OWN_VARIABLES:
            yield f"{path}.env[{index}].name", name, _FIELDS.get(name, "is the operator's; remove it")
    for index, port in enumerate(objects(container, "ports")):
        if port.get("name") == HEALTH_PORT_NAME:
            yield f"{path}.ports[{index}].name", port["name"], "is the operator's; use another name"
    for index, mount in enumerate(objects(container, "volumeMounts")):
        where = posixpath.normpath("/" + str(mount.get("mountPath")).lstrip("/"))
        if where in (REPORT_DIR, TMP_DIR) or where.startswith(f"{REPORT_DIR}/"):
            yield f"{path}.volumeMounts[{index}].mountPath", mount["mountPath"], "is the operator's; use another path"
