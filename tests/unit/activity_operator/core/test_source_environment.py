"""What a worker is told of its source, and what of that gives its revision a name."""

from typing import Any

import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.core.manifests import revision_of
from activity_operator.core.source_environment import source_environment, source_parts
from tests.unit.activity_operator.core.builders import pool

REDIS = {"address": "redis:6379", "flow": "images", "queue": "resize"}
STORE = {"urlSecretRef": {"name": "tasks", "key": "url"}}


def counted(**source: Any) -> PoolSpec:
    """Return a spec with this source."""
    return PoolSpec.model_validate({"source": source, "handlerImage": "i", "maxWorkers": 10})


def told(spec: PoolSpec) -> dict[str, Any]:
    """Return the variables by name: their values, or whence they come."""
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in source_environment(spec)}


def test_an_activitys_worker_is_told_arn_region_and_endpoint() -> None:
    assert told(pool(aws={"endpointUrl": "http://states"})) == {
        "ACTIVITY_ARN": "arn:aws:states:eu-west-1:123456789012:activity:a",
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL_SFN": "http://states",
    }


def test_a_queues_worker_is_told_all_that_the_spec_says_and_nothing_of_aws() -> None:
    more = {"nextQueue": "crop", "attributes": ["path", "size"], "lockSeconds": 9, "renewLock": True}

    assert told(counted(redis={**REDIS, **more, "conclude": "Atomic"})) == {
        "ACTIVITY_REDIS_URL": "redis://redis:6379",
        "ACTIVITY_REDIS_FLOW": "images",
        "ACTIVITY_REDIS_QUEUE": "resize",
        "ACTIVITY_REDIS_NEXT_QUEUE": "crop",
        "ACTIVITY_REDIS_ATTRIBUTES": "path,size",
        "ACTIVITY_REDIS_LOCK_SECONDS": "9",
        "ACTIVITY_REDIS_RENEW_LOCK": "true",
        "ACTIVITY_REDIS_CONCLUDE": "atomic",
    }


def test_what_a_queue_has_not_is_not_told() -> None:
    names = told(counted(redis=REDIS)).keys()

    assert not {"ACTIVITY_REDIS_NEXT_QUEUE", "ACTIVITY_REDIS_ATTRIBUTES"} & names


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("ACTIVITY_REDIS_URL", {"redis": {"flow": "f", "queue": "q", "urlSecretRef": {"name": "tasks", "key": "url"}}}),
        ("ACTIVITY_STORE_URL", {"taskStore": STORE}),
    ],
)
def test_a_url_with_a_password_is_told_by_its_secret_only(name: str, source: dict[str, Any]) -> None:
    assert told(counted(**source))[name] == {"secretKeyRef": {"name": "tasks", "key": "url"}}


def test_a_runner_is_told_the_store_and_its_lease_and_not_which_tasks_are_counted() -> None:
    spec = counted(taskStore={"url": "postgresql://db/tasks", "tasks": ["order"], "leaseSeconds": 20})

    assert told(spec) == {"ACTIVITY_STORE_URL": "postgresql://db/tasks", "ACTIVITY_STORE_LEASE_SECONDS": "20"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"redis": REDIS}, {"redis": {**REDIS, "lockSeconds": 9}}),
        ({"redis": REDIS}, {"redis": {**REDIS, "queue": "crop"}}),
        ({"taskStore": STORE}, {"taskStore": {**STORE, "leaseSeconds": 9}}),
        ({"taskStore": STORE}, {"taskStore": {"urlSecretRef": {"name": "others", "key": "url"}}}),
        ({"taskStore": STORE}, {"redis": REDIS}),
    ],
)
def test_what_a_worker_is_told_of_its_source_makes_another_revision(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert revision_of(counted(**one)) != revision_of(counted(**other))


def test_which_tasks_are_counted_replaces_no_worker() -> None:
    assert revision_of(counted(taskStore=STORE)) == revision_of(counted(taskStore={**STORE, "tasks": ["order"]}))


def test_what_is_as_by_default_is_no_part_of_the_name_so_that_a_new_field_replaces_no_worker() -> None:
    given = {"address": "redis:6379", "flow": "images", "queue": "resize"}

    assert source_parts(counted(redis={**REDIS, "lockSeconds": 180, "renewLock": False})) == {"redis": given}
    assert source_parts(counted(taskStore=STORE)) == {"task_store": {"url_secret_ref": {"name": "tasks", "key": "url"}}}


@pytest.mark.parametrize("queue", ["$(POD_NAME)", "$$(POD_NAME)", "a$b", "$"])
def test_a_queue_is_named_as_the_spec_says_and_no_other_variable_is_put_in_its_place(queue: str) -> None:
    given = str(told(counted(redis={**REDIS, "queue": queue}))["ACTIVITY_REDIS_QUEUE"])

    # What the kubelet makes of it: $$ is a dollar, $(NAME) another variable.
    assert "$(" not in given.replace("$$", "")
    assert given.replace("$$", "$") == queue
