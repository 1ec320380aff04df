"""What `podTemplate` may say: additions to the workers' pods that leave them restricted and ours to manage.

The CRD keeps the pod spec as free-form YAML (a typed one would be larger than everything else), so what would harm is
refused here; what remains wrong is refused by the API server when the Deployment is applied.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from activity_operator.api import rules
from activity_operator.api.conditions import Reason
from activity_operator.api.errors import SpecError
from activity_worker.contract.names import GROUP

#: The container that runs the handler.
WORKER_CONTAINER = "worker"
#: Kinds of volume that the restricted Pod Security Standard allows.
RESTRICTED_VOLUMES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
#: Capabilities that the restricted Pod Security Standard lets a container add.
RESTRICTED_CAPABILITIES = frozenset({"NET_BIND_SERVICE"})

#: The most labels or annotations; a bound that the cost estimate of the rules needs.
MAX_KEYS = 64


def _keys_schema(description: str) -> dict[str, Any]:
    return {
        "type": "object",
        "maxProperties": MAX_KEYS,
        "additionalProperties": {"type": "string"},
        "description": description,
        **rules.attach(rules.OWN_KEYS),
    }


#: The schema of the field; pydantic sees a plain mapping.
POD_TEMPLATE_SCHEMA: dict[str, Any] = {
    "properties": {
        "metadata": {
            "type": "object",
            "description": "Labels and annotations of the workers' pods.",
            "properties": {
                "labels": _keys_schema("Labels of the workers' pods, none under activitypools.dev/."),
                "annotations": _keys_schema("Annotations of the workers' pods, none under activitypools.dev/."),
            },
        },
        "spec": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "description": "A pod spec (see kubectl explain pod.spec): volumes, sidecars, node selection, and in the "
            "container named worker what the handler needs. Its image is handlerImage.",
        },
    }
}

_NOT_RESTRICTED = "is not allowed in a restricted pod; remove it"
_OURS = {
    "activeDeadlineSeconds": "would kill workers at work; remove it (spec.taskDeadlineSeconds bounds one task)",
    "restartPolicy": "is the operator's; remove it (workers are restarted always)",
    "terminationGracePeriodSeconds": "is the operator's; set spec.drain.timeoutSeconds instead",
    "serviceAccountName": "is the operator's; set spec.serviceAccountName instead",
    "serviceAccount": "is the operator's; set spec.serviceAccountName instead",
}


def check_pod_template(template: Mapping[str, Any]) -> None:
    """Raise SpecError (reason PodTemplateRejected) for the first thing in the template that cannot be taken."""
    for field, value, fix in _problems(template):
        raise SpecError(f"podTemplate.{field}", value, fix, Reason.POD_TEMPLATE_REJECTED)


Problem = tuple[str, Any, str]


def _problems(template: Mapping[str, Any]) -> Iterator[Problem]:
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    for field, value in (("metadata", metadata), ("spec", spec)):
        if not isinstance(value, Mapping):
            yield field, value, "must be an object"
            return
    for kind in ("labels", "annotations"):
        for key in metadata.get(kind) or {}:
            if key.startswith(f"{GROUP}/"):
                yield f"metadata.{kind}", key, f"is the operator's own; remove keys under {GROUP}/"
    yield from _pod_problems(spec)


def _pod_problems(spec: Mapping[str, Any]) -> Iterator[Problem]:
    for field, fix in _OURS.items():
        if field in spec:
            yield f"spec.{field}", spec[field], fix
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield f"spec.{field}", True, _NOT_RESTRICTED
    yield from _security_problems("spec.securityContext", spec.get("securityContext"))
    for index, volume in enumerate(_objects(spec, "volumes")):
        for kind in volume.keys() - RESTRICTED_VOLUMES - {"name"}:
            yield f"spec.volumes[{index}]", kind, _NOT_RESTRICTED
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(_objects(spec, kind)):
            yield from _container_problems(f"spec.{kind}[{index}]", container)


def _container_problems(field: str, container: Mapping[str, Any]) -> Iterator[Problem]:
    if not container.get("name"):
        yield f"{field}.name", None, f"is required; the handler's container is named {WORKER_CONTAINER}"
    if container.get("name") == WORKER_CONTAINER and "image" in container:
        yield f"{field}.image", container["image"], "is the operator's; set spec.handlerImage instead"
    for index, port in enumerate(_objects(container, "ports")):
        if port.get("hostPort"):
            yield f"{field}.ports[{index}].hostPort", port["hostPort"], _NOT_RESTRICTED
    yield from _security_problems(f"{field}.securityContext", container.get("securityContext"))


def _security_problems(field: str, context: Any) -> Iterator[Problem]:
    if not isinstance(context, Mapping):
        return
    for name, bad in (("privileged", True), ("allowPrivilegeEscalation", True), ("runAsNonRoot", False)):
        if context.get(name) is bad:
            yield f"{field}.{name}", str(bad).lower(), _NOT_RESTRICTED
    if context.get("runAsUser") == 0:
        yield f"{field}.runAsUser", "0", _NOT_RESTRICTED
    capabilities = context.get("capabilities") or {}
    for name in capabilities.get("add") or []:
        if name not in RESTRICTED_CAPABILITIES:
            yield f"{field}.capabilities.add", name, _NOT_RESTRICTED
    for profile in ("seccompProfile", "appArmorProfile"):
        if (context.get(profile) or {}).get("type") == "Unconfined":
            yield f"{field}.{profile}.type", "Unconfined", _NOT_RESTRICTED


def _objects(parent: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    """Return the objects in a list of the pod spec. What is no list of objects is left to the API server's verdict."""
    items = parent.get(field)
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
