"""The chart's taskbroker: nothing unless it is asked for, and what it renders fits the broker's command line."""

from __future__ import annotations

from typing import Any

import pytest

from activity_worker.cli.parser import make_parser
from activity_worker.taskbroker.broker.listed_workers import ListedWorkers, read_worker_map
from activity_worker.taskbroker.cli.kafka_flags import OPTIONS, kafka_settings
from activity_worker.taskbroker.cli.parser import SECRETS, STORE, WORKER_MAP
from activity_worker.taskbroker.kafka.settings import KafkaSettings
from activity_worker.taskbroker.store.statements import TaskFilter
from tests.cluster import go_builds
from tests.integration.chart.rendering import NAMESPACE, Helm, Objects

pytestmark = pytest.mark.timeout(900)  # the first run on a machine builds Helm

NAME = "activity-taskbroker"
IMAGE = {"repository": "registry.example.com/activity-worker"}
KAFKA = {
    "bootstrapServers": "kafka-0:9092,kafka-1:9092",
    "topics": ["tasks", "again"],
    "group": "shop",
    "retryTopic": "again",
    "deadLetterTopic": "dead",
}
URL = {"storeUrlSecretRef": {"name": "tasks", "key": "url"}}


@pytest.fixture(scope="module")
def helm() -> Helm:
    """Helm, from the cache."""
    return Helm(go_builds.find(["helm"])["helm"])


def rendered(helm: Helm, **values: Any) -> Objects:
    """Return the broker's objects with these values of it."""
    found = helm.objects({"taskbroker": {"enabled": True, "image": IMAGE, **values}})
    return {key: raw for key, raw in found.items() if key[1].startswith(NAME)}


def workload(objects: Objects) -> dict[str, Any]:
    (found,) = (raw for (kind, _), raw in objects.items() if kind in {"Deployment", "StatefulSet"})
    return found


def container(objects: Objects) -> dict[str, Any]:
    (only,) = workload(objects)["spec"]["template"]["spec"]["containers"]
    return dict(only)


def options(objects: Objects) -> dict[str, Any]:
    """Return what the broker reads from the container's arguments; a flag that it does not have fails."""
    return vars(make_parser().parse_args(container(objects)["args"]))


def test_nothing_of_the_broker_is_installed_by_default(helm: Helm) -> None:
    assert not [key for key in helm.objects() if key[1].startswith(NAME)]


def test_pushes_have_a_delivery_a_list_of_workers_and_their_authority(helm: Helm) -> None:
    listed = [{"application": "shop", "addresses": ["worker:50052"]}]
    tls = {"caSecretName": "workers", "name": "mail-workers"}
    objects = rendered(helm, delivery="push", workerMap=listed, workerTls=tls)
    given = options(objects)
    assert (given["delivery"], given["worker_tls_name"]) == ("push", "mail-workers")
    (variable,) = (one for one in container(objects)["env"] if one["name"] == WORKER_MAP)
    assert read_worker_map(variable["value"]) == [ListedWorkers(TaskFilter(application="shop"), ("worker:50052",))]
    (mount,) = (one for one in container(objects)["volumeMounts"] if given["worker_ca"].startswith(one["mountPath"]))
    volumes = workload(objects)["spec"]["template"]["spec"]["volumes"]
    (volume,) = (one for one in volumes if one["name"] == mount["name"])
    assert volume["secret"]["secretName"] == "workers"
    assert options(rendered(helm))["delivery"] == "both"


def test_one_broker_on_sqlite_keeps_its_store_on_a_volume(helm: Helm) -> None:
    objects = rendered(helm, storage={"size": "3Gi", "storageClassName": "fast"})
    assert set(objects) == {("StatefulSet", NAME), ("Service", NAME), ("Service", f"{NAME}-metrics")}
    (claim,) = workload(objects)["spec"]["volumeClaimTemplates"]
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "3Gi"}},
    }
    (mount,) = (one for one in container(objects)["volumeMounts"] if one["name"] == claim["metadata"]["name"])
    assert options(objects)["store"] == f"sqlite:///{mount['mountPath']}/taskbroker.db"
    assert "env" not in container(objects)


def test_brokers_on_postgresql_share_the_store_of_a_secret(helm: Helm) -> None:
    objects = rendered(helm, replicas=3, **URL)
    found = workload(objects)
    assert (found["kind"], found["spec"]["replicas"]) == ("Deployment", 3)
    assert objects["PodDisruptionBudget", NAME]["spec"]["maxUnavailable"] == 1
    assert ("PodDisruptionBudget", NAME) not in rendered(helm, **URL)
    assert container(objects)["env"] == [
        {"name": STORE, "valueFrom": {"secretKeyRef": {"name": "tasks", "key": "url"}}}
    ]
    assert options(objects)["store"] == ""
    assert [one["name"] for one in container(objects)["volumeMounts"]] == ["tmp"]


def test_several_brokers_on_sqlite_are_refused(helm: Helm) -> None:
    with pytest.raises(AssertionError, match=r"taskbroker\.replicas is 2, and SQLite is for one broker"):
        rendered(helm, replicas=2)


def test_secrets_tls_and_limits_reach_the_broker(helm: Helm) -> None:
    limits = {"maxPending": 5_000_000, "maxProcessing": 7, "maxAttempts": 3}
    signing = {"name": "broker", "key": "list"}
    objects = rendered(helm, signingSecretRef=signing, tlsSecretName="broker-tls", **limits)
    found = options(objects)
    assert (found["max_pending"], found["max_processing"], found["max_attempts"]) == (5_000_000, 7, 3)
    assert container(objects)["env"] == [{"name": SECRETS, "valueFrom": {"secretKeyRef": signing}}]
    volumes = {one["name"]: one for one in workload(objects)["spec"]["template"]["spec"]["volumes"]}
    (mount,) = (one for one in container(objects)["volumeMounts"] if one["name"] == "tls")
    assert volumes["tls"]["secret"]["secretName"] == "broker-tls"
    assert found["tls_certificate"] == f"{mount['mountPath']}/tls.crt"
    assert found["tls_key"] == f"{mount['mountPath']}/tls.key"


def test_kafka_reaches_the_broker_and_its_password_as_a_variable(helm: Helm) -> None:
    secret = {"name": "kafka", "key": "json"}
    objects = rendered(helm, kafka={**KAFKA, "optionsSecretRef": secret, "tlsSecretName": "kafka-ca"})
    found = kafka_settings(options(objects), {})
    assert found == KafkaSettings("kafka-0:9092,kafka-1:9092", ("tasks", "again"), "shop", "again", "dead")
    assert container(objects)["env"] == [{"name": OPTIONS, "valueFrom": {"secretKeyRef": secret}}]
    volumes = {one["name"]: one for one in workload(objects)["spec"]["template"]["spec"]["volumes"]}
    (mount,) = (one for one in container(objects)["volumeMounts"] if one["name"] == "kafka")
    assert volumes["kafka"]["secret"]["secretName"] == "kafka-ca"
    assert mount["mountPath"] == "/etc/taskbroker/kafka"


def test_nothing_of_kafka_is_rendered_without_servers(helm: Helm) -> None:
    assert kafka_settings(options(rendered(helm)), {}) is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"topics": [], "retryTopic": "", "deadLetterTopic": ""}, "bootstrapServers is set without a topic"),
        ({"bootstrapServers": ""}, "taskbroker.kafka.bootstrapServers is empty"),
        ({"topics": ["tasks"]}, "retryTopic is again, which no broker of this release reads"),
        ({"bootstrapServers": "a, b"}, "bootstrapServers"),
        ({"topics": ["a b"]}, "topics"),
        ({"group": ""}, "group"),
        ({"password": "ruby"}, "password"),
    ],
)
def test_incomplete_kafka_is_refused_with_the_value_to_set(helm: Helm, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        rendered(helm, kafka=KAFKA | changed)


def test_service_and_probes_use_the_ports_of_the_broker(helm: Helm) -> None:
    objects = rendered(helm)
    only, found = container(objects), options(objects)
    ports = {each["name"]: each["containerPort"] for each in only["ports"]}
    labels = workload(objects)["spec"]["template"]["metadata"]["labels"]
    assert found["address"] == f"0.0.0.0:{ports['grpc']}"
    assert found["health_port"] == ports["health"]
    for name, port in (NAME, "grpc"), (f"{NAME}-metrics", "health"):
        service = objects["Service", name]
        (exposed,) = service["spec"]["ports"]
        assert (exposed["port"], exposed["targetPort"]) == (ports[port], port)
        assert service["spec"]["selector"].items() <= labels.items()
        assert service["metadata"]["namespace"] == NAMESPACE
    probes = {name: only[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {each["port"] for each in probes.values()} == {"health"}
    assert probes["readinessProbe"]["path"] == "/readyz"


def test_brokers_pods_are_not_the_operators(helm: Helm) -> None:
    objects = helm.objects({"taskbroker": {"enabled": True, "image": IMAGE}})
    labels = objects["StatefulSet", NAME]["spec"]["template"]["metadata"]["labels"]
    for service in ("activity-operator-reports", "activity-operator-metrics"):
        assert not objects["Service", service]["spec"]["selector"].items() <= labels.items()


@pytest.mark.parametrize("values", [{}, URL], ids=["SQLite", "PostgreSQL"])
def test_pods_meet_the_restricted_standard_and_get_no_token(helm: Helm, values: dict[str, Any]) -> None:
    objects = rendered(helm, **values)
    pod = workload(objects)["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(objects)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_missing_image_is_refused_with_the_way_to_make_one(helm: Helm) -> None:
    with pytest.raises(AssertionError, match=r"taskbroker\.image\.repository is empty") as refused:
        rendered(helm, image={})
    assert "docker build -f worker_image/Dockerfile" in str(refused.value)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicas": 0}, "replicas"),
        ({"storage": {"size": "8"}}, "size"),
        ({"storeUrl": "postgresql://db/tasks"}, "storeUrl"),
        ({"signingSecretRef": {"name": "a", "key": "a b"}}, "key"),
        ({"maxAttempts": 0}, "maxAttempts"),
    ],
)
def test_unusable_value_is_refused_by_name(helm: Helm, values: dict[str, Any], named: str) -> None:
    with pytest.raises(AssertionError, match=named):
        rendered(helm, **values)
