"""The chart fits the operator's code: names, ports, rights and policy are compared with the code."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from activity_operator.cluster import resources
from activity_operator.cluster.store import KINDS
from activity_operator.core.tenancy import TenancyRule, parse_policy
from activity_operator.reports.certificate_manager import BUNDLE_NAME
from activity_operator.settings import OperatorSettings
from activity_operator.wiring import report_names
from activity_worker.contract import LABEL_LEADER
from tests.cluster import go_builds
from tests.integration.chart.rendering import (
    CHART,
    IMAGE,
    NAMESPACE,
    ROOT,
    Helm,
    Objects,
    container,
    environment,
    granted,
    granted_by,
)

pytestmark = pytest.mark.timeout(900)  # the first run on a machine builds Helm

CRD = "activitypools.activitypools.dev"
RULE = {
    "namespaces": ["team-*"],
    "activityArns": ["arn:*:a-*"],
    "roleArns": ["arn:r"],
    "endpointUrls": ["http://e:1"],
    "sourceHosts": ["redis:6379"],
}
GET_SECRETS = {("", "secrets", "get", "")}


@pytest.fixture(scope="module")
def helm() -> Helm:
    """Helm, from the cache."""
    return Helm(go_builds.find(["helm"])["helm"])


@pytest.fixture(scope="module")
def objects(helm: Helm) -> Objects:
    """The chart rendered with no value except the image."""
    return helm.objects()


@pytest.fixture(scope="module")
def settings(objects: Objects) -> OperatorSettings:
    """The operator's settings with the environment of the chart."""
    return OperatorSettings.read([], environment(objects))


def test_helm_lint_gives_no_warning(helm: Helm) -> None:
    helm.run("lint", "--strict")


def test_chart_has_a_copy_of_the_generated_crd() -> None:
    """Fix with `cp crds/*.yaml charts/activity-operator/files/`."""
    expected = (ROOT / "crds" / f"{CRD}.yaml").read_text()

    assert expected == (CHART / "files" / f"{CRD}.yaml").read_text()


def test_crd_is_rendered_unchanged_and_kept_on_uninstall(objects: Objects) -> None:
    expected = yaml.safe_load((ROOT / "crds" / f"{CRD}.yaml").read_text())
    rendered = objects["CustomResourceDefinition", CRD]

    assert expected["spec"] == rendered["spec"]
    assert rendered["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_crd_can_be_left_out(helm: Helm) -> None:
    assert ("CustomResourceDefinition", CRD) not in helm.objects({"crds": {"install": False}})


def test_operator_reads_every_variable_of_the_chart(objects: Objects) -> None:
    """The operator would ignore a misspelled name silently."""
    known = {each.metadata["from"].variable for each in OperatorSettings.__dataclass_fields__.values()}

    assert set(environment(objects)) <= known


def test_extra_environment_cannot_replace_the_charts_variables(helm: Helm, objects: Objects) -> None:
    for name in environment(objects):
        with pytest.raises(AssertionError, match="extraEnv"):
            helm.objects({"extraEnv": [{"name": name, "value": "x"}]})


def test_workers_reach_the_leader_by_their_report_url(objects: Objects, settings: OperatorSettings) -> None:
    service = objects["Service", settings.report_service]
    (port,) = service["spec"]["ports"]
    ports = {each["name"]: each["containerPort"] for each in container(objects)["ports"]}
    pod_labels = objects["Deployment", "activity-operator"]["spec"]["template"]["metadata"]["labels"]

    assert settings.report_url.removeprefix("https://") in report_names(settings)
    assert service["metadata"]["namespace"] == settings.namespace
    assert (port["port"], ports[port["targetPort"]]) == (settings.report_service_port, settings.report_port)
    assert service["spec"]["selector"].items() - pod_labels.items() == {(LABEL_LEADER, "true")}


def test_workers_reach_a_leader_that_is_not_ready(objects: Objects, settings: OperatorSettings) -> None:
    """A node whose kubelet hangs makes its pods NotReady; a leader on it must still get reports."""
    service = objects["Service", settings.report_service]

    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"][LABEL_LEADER] == "true", "the Service must select the leader only"


def test_probes_and_scrapes_use_the_health_port(objects: Objects, settings: OperatorSettings) -> None:
    only = container(objects)
    ports = {each["name"]: each["containerPort"] for each in only["ports"]}
    (metrics,) = objects["Service", "activity-operator-metrics"]["spec"]["ports"]

    paths = {kind: only[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
    assert {only[f"{kind}Probe"]["httpGet"]["port"] for kind in paths} == {metrics["targetPort"]} == {"health"}
    assert ports["health"] == settings.health_port


def test_role_grants_exactly_the_operators_calls(objects: Objects) -> None:
    watched = {(resource.group, resource.plural, verb, "") for resource in KINDS for verb in ("list", "watch")}
    written = {
        (resources.POOLS.group, "activitypools", "get", ""),
        (resources.POOLS.group, "activitypools/status", "patch", ""),
        (resources.POOLS.group, "activitypools/finalizers", "update", ""),
        *((resources.DEPLOYMENTS.group, "deployments", verb, "") for verb in ("get", "create", "patch", "delete")),
        (resources.REPLICA_SETS.group, "replicasets", "get", ""),
        *((resources.PODS.group, "pods", verb, "") for verb in ("patch", "delete")),
        *((resources.CONFIG_MAPS.group, "configmaps", verb, BUNDLE_NAME) for verb in ("get", "create", "patch")),
        *((resources.EVENTS.group, "events", verb, "") for verb in ("create", "patch")),
        (resources.TOKEN_REVIEWS.group, "tokenreviews", "create", ""),
    }

    assert granted(objects, "ClusterRole") == watched | written


def test_leases_and_secrets_are_granted_in_the_own_namespace_only(objects: Objects, settings: OperatorSettings) -> None:
    leases = {(resources.LEASES.group, "leases", verb, settings.lease_name) for verb in ("get", "update")}
    verbs = ("get", "list", "create", "update", "patch", "delete")
    secrets = {(resources.SECRETS.group, "secrets", verb, "") for verb in verbs}

    expected = leases | secrets | {(resources.LEASES.group, "leases", "create", "")}
    assert granted(objects, "Role") == expected
    assert objects["Role", "activity-operator"]["metadata"]["namespace"] == settings.namespace


def test_pool_secrets_can_be_granted_by_name_in_listed_namespaces(helm: Helm) -> None:
    found = helm.rendered({"secretNamespaces": ["team-a", "team-b"]})
    roles = [each for each in found if each["metadata"]["name"] == "activity-operator-secrets"]

    assert [(each["kind"], each["metadata"]["namespace"]) for each in roles] == [
        (kind, namespace) for kind in ("Role", "RoleBinding") for namespace in ("team-a", "team-b")
    ]
    assert all(granted_by(each) == GET_SECRETS for each in roles if each["kind"] == "Role")
    account = {"kind": "ServiceAccount", "name": "activity-operator", "namespace": NAMESPACE}
    assert all(each["subjects"] == [account] for each in roles if each["kind"] == "RoleBinding")


def test_pool_secrets_can_be_granted_everywhere_but_not_by_default(helm: Helm, objects: Objects) -> None:
    everywhere = helm.objects({"secretNamespaces": ["*", "team-a"]})
    name = "activity-operator-secrets"

    assert granted_by(everywhere["ClusterRole", name]) == GET_SECRETS
    assert everywhere["ClusterRoleBinding", name]["roleRef"]["kind"] == "ClusterRole"
    assert ("Role", name) not in everywhere
    assert name not in {found for _, found in objects}


def test_redis_interval_reaches_the_operator(helm: Helm, settings: OperatorSettings) -> None:
    slower = OperatorSettings.read([], environment(helm.objects({"redisCountSeconds": 2.5})))

    assert (settings.redis_count_seconds, slower.redis_count_seconds) == (0.1, 2.5)
    assert (settings.swf_counts_per_second, settings.swf_count_seconds) == (5.0, 0.35)


def test_rate_of_status_writes_reaches_the_operator(helm: Helm, settings: OperatorSettings) -> None:
    slower = OperatorSettings.read([], environment(helm.objects({"statusRate": 5})))

    assert (settings.status_rate, slower.status_rate) == (50, 5)


def test_pods_meet_the_restricted_standard_with_a_read_only_root(objects: Objects) -> None:
    pod = objects["Deployment", "activity-operator"]["spec"]["template"]["spec"]
    only = container(objects)
    volumes = {each["name"]: each for each in pod["volumes"]}
    mounted = {each["mountPath"]: volumes[each["name"]] for each in only["volumeMounts"]}

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert mounted["/tmp"]["emptyDir"]["medium"] == "Memory"


def test_one_of_two_replicas_may_be_evicted_at_a_time(helm: Helm, objects: Objects) -> None:
    budget = ("PodDisruptionBudget", "activity-operator")

    assert objects["Deployment", "activity-operator"]["spec"]["replicas"] == 2
    assert objects[budget]["spec"]["maxUnavailable"] == 1
    assert budget not in helm.objects({"replicas": 1})


@pytest.mark.parametrize("stop_seconds", [75, 300])
def test_grace_period_is_longer_than_the_wait_for_open_polls(helm: Helm, stop_seconds: int) -> None:
    objects = helm.objects({"stopSeconds": stop_seconds})
    grace = objects["Deployment", "activity-operator"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]

    assert OperatorSettings.read([], environment(objects)).stop_seconds == stop_seconds
    assert grace >= stop_seconds + 15


def _policy(objects: Objects, settings: OperatorSettings) -> Any:
    (mount,) = (each for each in container(objects)["volumeMounts"] if each["name"] == "tenancy")
    name = settings.tenancy_file.removeprefix(mount["mountPath"] + "/")
    return yaml.safe_load(objects["ConfigMap", "activity-operator-tenancy"]["data"][name])


def test_no_rules_mean_the_default_policy(objects: Objects, settings: OperatorSettings) -> None:
    assert parse_policy(_policy(objects, settings)) == parse_policy(None)


def test_operator_reads_the_policy_rules_unchanged(helm: Helm, settings: OperatorSettings) -> None:
    objects = helm.objects({"tenancy": {"rules": [RULE, {"namespaces": ["*"]}]}})

    written = TenancyRule(("team-*",), ("arn:*:a-*",), ("arn:r",), ("http://e:1",), ("redis:6379",))
    assert parse_policy(_policy(objects, settings)).rules == (written, TenancyRule())


@pytest.mark.parametrize("image", [{}, {"repository": ""}, {"repository": None}, {"tag": "1.0.0"}])
def test_missing_image_is_refused_with_the_way_to_make_one(helm: Helm, image: dict[str, str | None]) -> None:
    with pytest.raises(AssertionError, match=r"image\.repository is empty") as refused:
        helm.objects({"image": image})

    assert "docker build -f operator/Dockerfile" in str(refused.value)
    assert "--set image.repository=REGISTRY/activity-operator" in str(refused.value)


def test_image_has_the_charts_version_unless_a_tag_is_given(helm: Helm, objects: Objects) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    tagged = helm.objects({"image": {**IMAGE, "tag": "dev"}})

    images = [container(each)["image"] for each in (objects, tagged)]
    assert images == [f"{IMAGE['repository']}:{version}", f"{IMAGE['repository']}:dev"]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replica": 3}, "replica"),
        ({"replicas": 0}, "replicas"),
        ({"stopSeconds": 10}, "stopSeconds"),
        ({"log": {"level": "info"}}, "level"),
        ({"image": {"name": "x"}}, "name"),
        ({"tenancy": {"rules": [{"activityArns": ["*"]}]}}, "namespaces"),
        ({"tenancy": {"rules": [{"namespaces": ["*"], "roles": ["*"]}]}}, "roles"),
        ({"tenancy": {"rules": [{"namespaces": "*"}]}}, "namespaces"),
        ({"tenancy": {"rules": [{"namespaces": ["*"], "sourceHosts": "redis:6379"}]}}, "sourceHosts"),
        ({"secretNamespaces": ["team-*"]}, "secretNamespaces"),
        ({"secretNamespaces": "team-a"}, "secretNamespaces"),
        ({"redisCountSeconds": 0}, "redisCountSeconds"),
        ({"swfCountsPerSecond": 0}, "swfCountsPerSecond"),
        ({"swfCountSeconds": 0.01}, "swfCountSeconds"),
        ({"statusRate": 0}, "statusRate"),
    ],
)
def test_unusable_value_is_refused_by_name(helm: Helm, values: dict[str, Any], named: str) -> None:
    with pytest.raises(AssertionError, match=named):
        helm.objects(values)
