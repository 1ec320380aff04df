"""The fields of a template that the restricted Pod Security Standard forbids, whatever the namespace enforces.

The list of fields is that of the standard (Kubernetes 1.34). The operator sets the fields that the standard requires
(`core.manifests`); this module finds the values that it forbids.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from activity_operator.api.pod_shape import Problem, containers, objects, part

#: Kinds of volume that the standard allows.
VOLUMES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
#: Capabilities that the standard lets a container add.
CAPABILITIES = frozenset({"NET_BIND_SERVICE"})
#: Kernel parameters that the standard lets a pod set.
SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)
#: Types of SELinux label that the standard lets a pod choose.
SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
_APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_PROFILES = {
    "seccompProfile": frozenset({"RuntimeDefault", "Localhost"}),
    "appArmorProfile": frozenset({"RuntimeDefault", "Localhost"}),
}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")

#: The fix for every forbidden field.
NOT_RESTRICTED = "is not allowed in a restricted pod; remove it"


def restricted_problems(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the fields that the restricted standard forbids, as (path, value, fix)."""
    for key, value in part(metadata, "annotations").items():
        if key.startswith(_APPARMOR_ANNOTATION) and value != "runtime/default" and not value.startswith("localhost/"):
            yield f"metadata.annotations.{key}", value, NOT_RESTRICTED
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield f"spec.{field}", True, NOT_RESTRICTED
    context = part(spec, "securityContext")
    yield from _context_problems("spec.securityContext", context)
    for index, sysctl in enumerate(objects(context, "sysctls")):
        if sysctl.get("name") not in SYSCTLS:
            yield f"spec.securityContext.sysctls[{index}].name", sysctl.get("name"), NOT_RESTRICTED
    for index, volume in enumerate(objects(spec, "volumes")):
        for kind in sorted(volume.keys() - VOLUMES - {"name"}):
            yield f"spec.volumes[{index}]", kind, NOT_RESTRICTED
    for path, container in containers(spec):
        yield from _container_problems(path, container)


def _container_problems(path: str, container: Mapping[str, Any]) -> Iterator[Problem]:
    for index, port in enumerate(objects(container, "ports")):
        for field in ("hostPort", "hostIP"):
            if port.get(field):
                yield f"{path}.ports[{index}].{field}", port[field], NOT_RESTRICTED
    context = part(container, "securityContext")
    yield from _context_problems(f"{path}.securityContext", context)
    for field in ("privileged", "allowPrivilegeEscalation"):
        if context.get(field):
            yield f"{path}.securityContext.{field}", context[field], NOT_RESTRICTED
    if context.get("procMount") not in (None, "", "Default"):
        yield f"{path}.securityContext.procMount", context["procMount"], NOT_RESTRICTED
    added = part(context, "capabilities").get("add")
    for name in added if isinstance(added, list) else [added] if added else []:
        if not isinstance(name, str) or name not in CAPABILITIES:
            yield f"{path}.securityContext.capabilities.add", name, NOT_RESTRICTED
    yield from _host_problems(path, container)


def _context_problems(path: str, context: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the forbidden fields of a security context, of the pod or of a container."""
    if context.get("runAsNonRoot") is False:
        yield f"{path}.runAsNonRoot", False, NOT_RESTRICTED
    if context.get("runAsUser") is not None and not context["runAsUser"]:
        yield f"{path}.runAsUser", context["runAsUser"], NOT_RESTRICTED
    for profile, allowed in _PROFILES.items():
        kind = part(context, profile).get("type")
        if kind is not None and (not isinstance(kind, str) or kind not in allowed):
            yield f"{path}.{profile}.type", kind, NOT_RESTRICTED
    labels = part(context, "seLinuxOptions")
    for field in ("user", "role"):
        if labels.get(field):
            yield f"{path}.seLinuxOptions.{field}", labels[field], NOT_RESTRICTED
    if not isinstance(labels.get("type", ""), str) or labels.get("type", "") not in SELINUX_TYPES:
        yield f"{path}.seLinuxOptions.type", labels["type"], NOT_RESTRICTED
    if part(context, "windowsOptions").get("hostProcess"):
        yield f"{path}.windowsOptions.hostProcess", True, NOT_RESTRICTED


def _host_problems(path: str, container: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield probes and hooks that make the kubelet call another address than the pod's."""
    lifecycle = part(container, "lifecycle")
    asked = {probe: part(container, probe) for probe in _PROBES}
    asked |= {f"lifecycle.{hook}": part(lifecycle, hook) for hook in ("postStart", "preStop")}
    for name, handler in asked.items():
        for kind in ("httpGet", "tcpSocket"):
            if host := part(handler, kind).get("host"):
                yield f"{path}.{name}.{kind}.host", host, NOT_RESTRICTED
