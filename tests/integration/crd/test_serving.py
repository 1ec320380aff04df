"""What the API server derives from the CRD: defaults, columns, explanations, and the two subresources."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from activity_operator.api.conditions import Condition, ConditionType, Reason, merge
from activity_operator.api.spec import parse_spec
from activity_operator.api.status import DecisionRecord, EventRecord, ExitRecord, PoolStatus, WorkerRecord, parse_status
from tests.integration.crd.arrange import MINIMAL, Kubectl, pool

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def a_full_status(generation: int) -> PoolStatus:
    """Return a status in which every field has a value."""
    ready = Condition(ConditionType.READY, "True", Reason.POOL_READY, "2 workers are ready", generation)
    return PoolStatus(
        observed_generation=generation,
        conditions=merge((), [ready, Condition(ConditionType.ACTIVE, "True", Reason.TASKS_PRESENT)], NOON),
        replicas=3,
        ready_replicas=2,
        desired_replicas=4,
        busy_workers=1,
        backlog=7,
        waiting="7",
        selector="activitypools.dev/pool=resize-images",
        last_scale_time=NOON,
        last_scale_reason="7 tasks wait",
        proven_revision="5d8f",
        decisions=(DecisionRecord(at=NOON, desired=4, limit="max", victims=("a", "b")),) * 12,
        events=(EventRecord(at=NOON, name="worker:stopped", message="m" * 999, exit=ExitRecord(code=10, error="E")),)
        * 30,
        workers=(WorkerRecord(worker="resize-images-a", revision="a", state="Waiting", since=NOON, reason="r" * 999),)
        * 30,
    )


def write_status(kubectl: Kubectl, status: dict[str, Any]) -> dict[str, Any]:
    """Write the status as the operator does: server-side, to the subresource."""
    manifest = {**pool(), "status": status}
    del manifest["spec"]
    arguments = ("apply", "--server-side", "--subresource=status", "-o", "json", "-f", "-")
    return kubectl(*arguments, stdin=json.dumps(manifest)).object()


def test_api_server_fills_in_the_models_defaults(kubectl: Kubectl) -> None:
    stored = kubectl.apply(pool())["spec"]

    unset: dict[str, Any] = {"aws": True, "pod_template": True, "scaling": {"scale_down"}}
    assert stored == parse_spec(MINIMAL).model_dump(by_alias=True, exclude_none=True, exclude=unset)
    assert parse_spec(stored) == parse_spec(MINIMAL)


def test_partial_group_gets_the_other_defaults(kubectl: Kubectl) -> None:
    stored = kubectl.apply(pool(scaling={"scaleDown": {"zeroAfterSeconds": 5}}))["spec"]["scaling"]

    assert (stored["targetUtilization"], stored["mode"], stored["schedules"]) == (1, "Auto", [])
    assert stored["scaleDown"] == {"zeroAfterSeconds": 5}


def test_optional_group_is_unset_or_gets_its_defaults(kubectl: Kubectl) -> None:
    query = {"serverUrl": "http://prometheus:9090", "query": "vector(0)"}
    redis = {"address": "redis:6379", "flow": "images", "queue": "resize"}

    assert "source" not in kubectl.apply(pool())["spec"]
    assert "prometheus" not in kubectl.apply(pool())["spec"]["scaling"]
    stored = kubectl.apply(pool("counted", activityArn=None, source={"redis": redis}, scaling={"prometheus": query}))

    assert stored["spec"]["scaling"]["prometheus"] == {**query, "intervalSeconds": 15}
    defaults = {"nextQueue": "", "lockSeconds": 180, "renewLock": False, "conclude": "Dialect", "blockSeconds": 3}
    assert stored["spec"]["source"] == {"redis": {**redis, **defaults}}
    assert parse_spec(stored["spec"]).model_dump(exclude_none=True)["source"]["redis"]["attributes"] == []


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ({"stepFunctions": {"activityArn": MINIMAL["activityArn"]}}, MINIMAL["activityArn"]),
        ({"redis": {"address": "redis:6379", "flow": "images", "queue": "resize"}}, "resize"),
        ({"taskStore": {"url": "postgresql://db/tasks", "tasks": ["order"]}}, '["order"]'),
    ],
)
def test_wide_columns_show_the_source_in_each_form(kubectl: Kubectl, source: dict[str, Any], shown: str) -> None:
    kubectl.apply(pool(activityArn=None, source=source))

    header, row = kubectl("get", "apool", "-o", "wide").out.splitlines()
    at = header.index("SOURCE")
    assert row[at:].split()[0] == shown


def test_observed_generation_is_minus_one_before_the_first_status(kubectl: Kubectl) -> None:
    kubectl.apply(pool())

    assert kubectl("get", "apool", "resize-images", "-o", "json").object()["status"] == {"observedGeneration": -1}


def test_status_is_read_back_as_it_was_written(kubectl: Kubectl) -> None:
    kubectl.apply(pool())
    status = a_full_status(1)

    stored = write_status(kubectl, status.as_dict())

    assert stored["status"] == status.as_dict()
    assert parse_status(stored["status"]) == status


def test_columns_show_sizes_with_the_reason_and_wide_ones_the_source(kubectl: Kubectl) -> None:
    kubectl.apply(pool(minWorkers=1))
    write_status(kubectl, a_full_status(1).as_dict())

    header, row = kubectl("get", "apool").out.splitlines()
    assert " ".join(header.split()) == "NAME READY WORKERS DESIRED BUSY BACKLOG MIN MAX AGE REASON"
    assert " ".join(row.split()[:8]) == "resize-images True 2 4 1 7 1 5"
    assert row[header.index("REASON") :].rstrip() == "7 tasks wait"
    wide = kubectl("get", "workers", "-o", "wide").out
    assert "ACTIVE" in wide
    assert MINIMAL["handlerImage"] in wide
    assert MINIMAL["activityArn"] in wide
    assert "2 workers are ready" in wide


def test_kubectl_scale_pins_a_pool_without_replicas(kubectl: Kubectl) -> None:
    kubectl.apply(pool())

    scaled = kubectl("scale", "apool/resize-images", "--replicas=4")

    assert scaled.ok, scaled.err
    assert kubectl("get", "apool", "resize-images", "-o", "jsonpath={.spec.replicas}").out == "4"


def test_kubectl_scale_beyond_max_is_accepted_for_the_operator_to_limit(kubectl: Kubectl) -> None:
    kubectl.apply(pool())

    assert kubectl("scale", "apool/resize-images", "--replicas=50").ok


def test_scale_subresource_has_the_size_and_the_selector(kubectl: Kubectl) -> None:
    kubectl.apply(pool(replicas=3))
    write_status(kubectl, a_full_status(1).as_dict())

    path = f"/apis/activitypools.dev/v1alpha1/namespaces/{kubectl.namespace}/activitypools/resize-images/scale"
    scale = kubectl("get", "--raw", path).object()
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 3, "selector": "activitypools.dev/pool=resize-images"}


def test_status_update_keeps_the_generation(kubectl: Kubectl) -> None:
    kubectl.apply(pool())

    assert write_status(kubectl, a_full_status(1).as_dict())["metadata"]["generation"] == 1


def test_kubectl_wait_sees_a_pool_become_ready(kubectl: Kubectl) -> None:
    kubectl.apply(pool())
    write_status(kubectl, a_full_status(1).as_dict())

    assert kubectl("wait", "--for=condition=Ready", "apool/resize-images", "--timeout=10s").ok


def test_kubectl_explain_shows_unit_and_default(cluster_kubectl: Kubectl) -> None:
    explanation = " ".join(cluster_kubectl("explain", "apool.spec.scaling.scaleDown.zeroAfterSeconds").out.split())

    assert "Seconds without any task" in explanation
    assert "Unset (default): twenty times the measured start of a pod" in explanation


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        ("source", "exactly one member"),
        ("source.redis.lockSeconds", "Seconds for which a job is its worker's (default 180)"),
        ("source.redis.urlSecretRef", "rediss://user:password@redis:6379/0. Either this or address"),
        ("source.taskStore.leaseSeconds", "(default 60)"),
        ("source.taskStore.tasks", "(default: all in the store)"),
        ("scaling.prometheus", "the pool is never smaller than either asks for"),
        ("scaling.prometheus.query", "write 'or vector(0)' where it means none"),
        ("scaling.prometheus.intervalSeconds", "Seconds between two queries (default 15)"),
    ],
)
def test_kubectl_explain_shows_the_form_of_a_source(cluster_kubectl: Kubectl, field: str, sentence: str) -> None:
    assert sentence in " ".join(cluster_kubectl("explain", f"apool.spec.{field}").out.split())


def test_unknown_field_is_reported_at_once(cluster_kubectl: Kubectl) -> None:
    answer = cluster_kubectl.dry_run(pool(maxWorker=3))

    assert 'unknown field "spec.maxWorker"' in answer.err
