"""A pod template may add to the workers' pods; it may not loosen them or take what the operator manages."""

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
def test_additions_that_leave_the_pod_restricted_are_taken(template: dict[str, Any]) -> None:
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
def test_what_is_not_the_users_to_say_is_refused_with_its_field(field: str, template: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as refused:
        check_pod_template(template)

    assert (refused.value.field, refused.value.reason) == (f"podTemplate.{field}", Reason.POD_TEMPLATE_REJECTED)


def test_the_sentence_says_where_to_set_it_instead() -> None:
    with pytest.raises(SpecError, match=r"set spec\.handlerImage instead"):
        check_pod_template(container(image="another"))


@pytest.mark.parametrize("spec", [{"containers": "worker"}, {"containers": ["worker"]}, {"volumes": {"name": "x"}}])
def test_what_is_no_pod_spec_at_all_is_left_to_the_api_server(spec: dict[str, Any]) -> None:
    check_pod_template({"spec": spec})
