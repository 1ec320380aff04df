"""Pod templates: users may add to the workers' pods, but not weaken them or set what the operator manages."""

from typing import Any

import pytest

from activity_operator.api.conditions import Reason
from activity_operator.api.errors import SpecError
from activity_operator.api.pod_template import check_pod_template


def container(**fields: Any) -> dict[str, Any]:
    """Return a pod template with these fields in the handler's container."""
    return {"spec": {"containers": [{"name": "worker", **fields}]}}


@pytest.mark.parametrize(
    "template",
    [
        {},
        {"metadata": None, "spec": None},
        {"metadata": {"labels": {"team": "images"}, "annotations": {"example.com/a": "b"}}},
        container(resources={"limits": {"memory": "1Gi"}}, env=[{"name": "A", "value": "b"}]),
        container(securityContext={"runAsUser": 1000, "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}}),
        {"spec": {"volumes": [{"name": "scratch", "emptyDir": {}}], "nodeSelector": {"disk": "ssd"}}},
        {"spec": {"containers": [{"name": "sidecar", "image": "registry.example.com/proxy:1"}]}},
    ],
)
def test_additions_that_keep_the_pod_restricted_are_accepted(template: dict[str, Any]) -> None:
    check_pod_template(template)


@pytest.mark.parametrize(
    ("field", "template"),
    [
        ("metadata.labels", {"metadata": {"labels": {"activitypools.dev/pool": "mine"}}}),
        ("metadata.annotations", {"metadata": {"annotations": {"activitypools.dev/x": "y"}}}),
        ("spec", {"spec": "containers"}),
        ("spec.hostNetwork", {"spec": {"hostNetwork": True}}),
        ("spec.hostPID", {"spec": {"hostPID": True}}),
        ("spec.hostIPC", {"spec": {"hostIPC": True}}),
        ("spec.restartPolicy", {"spec": {"restartPolicy": "Never"}}),
        ("spec.terminationGracePeriodSeconds", {"spec": {"terminationGracePeriodSeconds": 5}}),
        ("spec.activeDeadlineSeconds", {"spec": {"activeDeadlineSeconds": 60}}),
        ("spec.serviceAccountName", {"spec": {"serviceAccountName": "admin"}}),
        ("spec.volumes[1]", {"spec": {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {}}]}}),
        ("spec.securityContext.runAsNonRoot", {"spec": {"securityContext": {"runAsNonRoot": False}}}),
        (
            "spec.securityContext.seccompProfile.type",
            {"spec": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}},
        ),
        (
            "spec.containers[0].securityContext.appArmorProfile.type",
            container(securityContext={"appArmorProfile": {"type": "Unconfined"}}),
        ),
        ("spec.containers[0].name", {"spec": {"containers": [{"image": "x"}]}}),
        ("spec.containers[0].image", container(image="another")),
        ("spec.containers[0].ports[0].hostPort", container(ports=[{"containerPort": 80, "hostPort": 80}])),
        ("spec.containers[0].securityContext.privileged", container(securityContext={"privileged": True})),
        ("spec.containers[0].securityContext.runAsUser", container(securityContext={"runAsUser": 0})),
        (
            "spec.containers[0].securityContext.allowPrivilegeEscalation",
            container(securityContext={"allowPrivilegeEscalation": True}),
        ),
        (
            "spec.containers[0].securityContext.capabilities.add",
            container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
        ),
        (
            "spec.initContainers[0].securityContext.privileged",
            {"spec": {"initContainers": [{"name": "a", "securityContext": {"privileged": True}}]}},
        ),
    ],
)
def test_forbidden_setting_is_refused_with_its_field(field: str, template: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as refused:
        check_pod_template(template)

    assert (refused.value.field, refused.value.reason) == (f"podTemplate.{field}", Reason.POD_TEMPLATE_REJECTED)


def test_message_names_the_field_to_use_instead() -> None:
    with pytest.raises(SpecError, match=r"set spec\.handlerImage instead"):
        check_pod_template(container(image="another"))


@pytest.mark.parametrize(
    ("variable", "field"),
    [("ACTIVITY_ON_ERROR", "handler.onError"), ("ACTIVITY_POLL_ATTEMPTS", "polling.failureThreshold")],
)
def test_variable_with_a_field_is_refused_and_the_field_named(variable: str, field: str) -> None:
    with pytest.raises(SpecError, match=rf"is the operator's; set spec\.{field} instead"):
        check_pod_template(container(env=[{"name": variable, "value": "1"}]))


def with_volume(**source: Any) -> dict[str, Any]:
    """Return a pod template with a volume."""
    return {"spec": {"volumes": [{"name": "a", **source}]}}


def token(**fields: Any) -> dict[str, Any]:
    """Return a pod template that mounts a token of the pod's ServiceAccount."""
    return with_volume(projected={"sources": [{"serviceAccountToken": {"path": "t", **fields}}]})


def nested(levels: int) -> Any:
    """Return an object with this many levels."""
    found: Any = 1
    for _ in range(levels):
        found = {"a": found}
    return found


@pytest.mark.parametrize(
    ("field", "template"),
    [
        ("spec.containers", {"spec": {"containers": "worker"}}),
        ("spec.containers", {"spec": {"containers": {}}}),
        ("spec.containers[0]", {"spec": {"containers": ["worker"]}}),
        ("spec.containers[0].name", {"spec": {"containers": [{"name": {"a": "b"}}]}}),
        ("spec.containers[1].name", {"spec": {"containers": [{"name": "worker"}, {"name": "worker"}]}}),
        ("spec.volumes", {"spec": {"volumes": {"name": "x"}}}),
        ("spec.volumes[0].name", {"spec": {"volumes": [{"name": [1]}]}}),
        ("spec.securityContext", {"spec": {"securityContext": "none"}}),
        ("spec.securityContext.seccompProfile", {"spec": {"securityContext": {"seccompProfile": "none"}}}),
        ("spec.containers[0].env", container(env={"A": "b"})),
        ("spec.containers[0].env[0].name", container(env=[{"name": {"a": 1}}])),
        ("spec.containers[0].securityContext.capabilities", container(securityContext={"capabilities": "ALL"})),
        (
            "spec.containers[0].securityContext.capabilities.add",
            container(securityContext={"capabilities": {"add": 5}}),
        ),
        (
            "spec.containers[0].securityContext.capabilities.add",
            container(securityContext={"capabilities": {"add": [{}]}}),
        ),
        ("spec", {"spec": {"affinity": nested(60)}}),
        ("spec", {"spec": {"affinity": nested(5_000)}}),
        ("spec", {"spec": {"x" * 2000: 1}}),
    ],
)
def test_malformed_pod_spec_is_refused_with_its_field(field: str, template: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as refused:
        check_pod_template(template)

    assert refused.value.field == f"podTemplate.{field}"


@pytest.mark.parametrize(
    ("field", "template"),
    [
        ("spec.nodeName", {"spec": {"nodeName": "control-plane"}}),
        ("spec.automountServiceAccountToken", {"spec": {"automountServiceAccountToken": True}}),
        ("spec.priorityClassName", {"spec": {"priorityClassName": "system-node-critical"}}),
        ("spec.volumes[0].name", {"spec": {"volumes": [{"name": "activitypool-report", "secret": {}}]}}),
        ("spec.volumes[0].projected.sources[0].serviceAccountToken.audience", token()),
        ("spec.volumes[0].projected.sources[0].serviceAccountToken.audience", token(audience="https://kubernetes")),
        (
            "spec.volumes[0].projected.sources[0].serviceAccountToken.audience",
            token(audience="activitypools.dev/operator"),
        ),
        ("spec.containers[0].env[0].name", container(env=[{"name": "ACTIVITY_ARN", "value": "another"}])),
        ("spec.containers[0].imagePullPolicy", container(imagePullPolicy="Always")),
        ("spec.containers[0].livenessProbe", container(livenessProbe={"exec": {"command": ["true"]}})),
        ("spec.containers[0].ports[0].name", container(ports=[{"name": "health", "containerPort": 1}])),
        ("spec.containers[0].volumeMounts[0].mountPath", container(volumeMounts=[{"name": "a", "mountPath": "/tmp/"}])),
        (
            "spec.containers[0].volumeMounts[0].mountPath",
            container(volumeMounts=[{"name": "a", "mountPath": "/var//run/x/../activitypool/token"}]),
        ),
        (
            "spec.containers[0].securityContext.readOnlyRootFilesystem",
            container(securityContext={"readOnlyRootFilesystem": False}),
        ),
        (
            "spec.securityContext.seccompProfile.type",
            {"spec": {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "a"}}}},
        ),
        (
            "metadata.annotations",
            {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-2147483648"}}},
        ),
    ],
)
def test_setting_that_the_operator_manages_is_refused_with_its_field(field: str, template: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as refused:
        check_pod_template(template)

    assert refused.value.field == f"podTemplate.{field}"


@pytest.mark.parametrize(
    ("field", "template"),
    [
        (
            "spec.securityContext.sysctls[0].name",
            {"spec": {"securityContext": {"sysctls": [{"name": "kernel.msgmax"}]}}},
        ),
        (
            "spec.securityContext.seLinuxOptions.user",
            {"spec": {"securityContext": {"seLinuxOptions": {"user": "root"}}}},
        ),
        (
            "spec.securityContext.windowsOptions.hostProcess",
            {"spec": {"securityContext": {"windowsOptions": {"hostProcess": True}}}},
        ),
        ("spec.containers[0].securityContext.procMount", container(securityContext={"procMount": "Unmasked"})),
        (
            "metadata.annotations.container.apparmor.security.beta.kubernetes.io/worker",
            {"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/worker": "unconfined"}}},
        ),
        ("spec.containers[0].startupProbe.httpGet.host", container(startupProbe={"httpGet": {"host": "10.0.0.1"}})),
        (
            "spec.containers[0].lifecycle.preStop.tcpSocket.host",
            container(lifecycle={"preStop": {"tcpSocket": {"host": "a"}}}),
        ),
    ],
)
def test_setting_that_the_restricted_level_forbids_is_refused(field: str, template: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as refused:
        check_pod_template(template)

    assert refused.value.field == f"podTemplate.{field}"


@pytest.mark.parametrize(
    "template",
    [
        token(audience="sts.amazonaws.com"),
        with_volume(secret={"secretName": "mine"}),
        container(env=[{"name": "ACTIVITY_HANDLER", "value": "a:b"}, {"name": "AWS_REGION", "value": "eu-west-1"}]),
        container(volumeMounts=[{"name": "a", "mountPath": "/tmp/cache"}], securityContext={"runAsUser": 1}),
        {"spec": {"containers": None, "volumes": None, "securityContext": None, "nodeName": None}},
        {"spec": {"priorityClassName": "batch", "tolerations": [{"operator": "Exists"}]}},
    ],
)
def test_harmless_setting_is_accepted(template: dict[str, Any]) -> None:
    check_pod_template(template)


def test_control_characters_in_values_are_escaped_in_the_message() -> None:
    with pytest.raises(SpecError) as refused:
        check_pod_template({"spec": {"nodeName": "a\n\x1b[31mroot\u202e\u2028"}})

    assert str(refused.value).isprintable()
    assert r"'a\n\x1b[31mroot\u202e\u2028'" in str(refused.value)
