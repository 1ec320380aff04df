"""The environment variables that name a worker's source, and the part of them that makes the revision's hash."""

from typing import Any

import pytest

from activity_operator.api.errors import SpecError
from activity_operator.api.spec import PoolSpec, parse_spec
from activity_operator.core.manifests import revision_of
from activity_operator.core.source_environment import source_environment, source_parts
from activity_worker.config.settings import read_settings
from activity_worker.config.sources import RedisSettings
from tests.unit.activity_operator.core.builders import pool

REDIS = {"address": "redis:6379", "flow": "images", "queue": "resize"}
STORE = {"urlSecretRef": {"name": "tasks", "key": "url"}}


def counted(**source: Any) -> PoolSpec:
    """Return a spec with this source."""
    return PoolSpec.model_validate({"source": source, "handlerImage": "i", "maxWorkers": 10})


def environment_of(spec: PoolSpec) -> dict[str, Any]:
    """Return the variables by name, each with its value or its reference."""
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in source_environment(spec)}


def test_activity_worker_gets_arn_region_and_endpoint() -> None:
    assert environment_of(pool(aws={"endpointUrl": "http://states"})) == {
        "ACTIVITY_ARN": "arn:aws:states:eu-west-1:123456789012:activity:a",
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL_SFN": "http://states",
    }


def test_redis_worker_gets_all_queue_settings_and_no_aws_ones() -> None:
    more = {"nextQueue": "crop", "attributes": ["path", "size"], "lockSeconds": 9, "renewLock": True}

    assert environment_of(counted(redis={**REDIS, **more, "conclude": "Atomic"})) == {
        "ACTIVITY_REDIS_URL": "redis://redis:6379",
        "ACTIVITY_REDIS_FLOW": "images",
        "ACTIVITY_REDIS_QUEUE": "resize",
        "ACTIVITY_REDIS_NEXT_QUEUE": "crop",
        "ACTIVITY_REDIS_ATTRIBUTES": "path,size",
        "ACTIVITY_REDIS_LOCK_SECONDS": "9",
        "ACTIVITY_REDIS_RENEW_LOCK": "true",
        "ACTIVITY_REDIS_CONCLUDE": "atomic",
    }


def test_changed_block_time_out_of_a_queue_reaches_the_worker() -> None:
    changed = environment_of(counted(redis={**REDIS, "blockSeconds": 20}))
    source = read_settings({}, changed).source

    assert isinstance(source, RedisSettings)
    assert source.block_seconds == 20.0
    assert environment_of(counted(redis={**REDIS, "blockSeconds": 3})) == environment_of(counted(redis=REDIS))


def test_taskbroker_worker_gets_addresses_filters_and_secrets_by_reference() -> None:
    signing, ca = {"name": "broker", "key": "secrets"}, {"name": "broker", "key": "ca.crt"}
    plain = counted(taskbroker={"addresses": ["a:1", "b:1"]})
    whole = {"application": "shop", "namespace": "mail", "signingSecretRef": signing, "tls": True, "caSecretRef": ca}

    assert environment_of(plain) == {"ACTIVITY_TASKBROKER": "a:1,b:1", "ACTIVITY_TASKBROKER_TLS": "false"}
    assert environment_of(counted(taskbroker={"addresses": ["a:1"], **whole})) == {
        "ACTIVITY_TASKBROKER": "a:1",
        "ACTIVITY_TASKBROKER_APPLICATION": "shop",
        "ACTIVITY_TASKBROKER_NAMESPACE": "mail",
        "ACTIVITY_TASKBROKER_TLS": "true",
        "ACTIVITY_TASKBROKER_SECRETS": {"secretKeyRef": signing},
        "ACTIVITY_TASKBROKER_CA": {"secretKeyRef": ca},
    }


def test_worker_that_is_pushed_to_registers_with_its_pods_address() -> None:
    signing = {"name": "broker", "key": "secrets"}
    pushed = {"addresses": ["a:1"], "delivery": "Push", "signingSecretRef": signing}
    plain = environment_of(counted(taskbroker=pushed))
    with_tls = environment_of(counted(taskbroker={**pushed, "pushTlsSecretName": "push"}))

    assert plain["ACTIVITY_TASKBROKER_DELIVERY"] == "push"
    assert plain["ACTIVITY_TASKBROKER_ADVERTISE"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert {name: with_tls[name] for name in with_tls.keys() - plain.keys()} == {
        "ACTIVITY_TASKBROKER_PUSH_CERTIFICATE": {"secretKeyRef": {"name": "push", "key": "tls.crt"}},
        "ACTIVITY_TASKBROKER_PUSH_KEY": {"secretKeyRef": {"name": "push", "key": "tls.key"}},
    }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"delivery": "Push"}, "delivery Push needs signingSecretRef"),
        ({"pushTlsSecretName": "push"}, "needs delivery Push: set delivery to Push"),
    ],
)
def test_push_without_its_other_settings_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        parse_spec({"source": {"taskbroker": {"addresses": ["a:1"], **fields}}, "handlerImage": "i", "maxWorkers": 1})


def test_task_list_worker_gets_domain_list_region_and_endpoint() -> None:
    source = {"swf": {"domain": "shop", "taskList": "invoices"}}
    where = {"region": "eu-west-1", "endpointUrl": "http://swf"}
    spec = PoolSpec.model_validate({"source": source, "aws": where, "handlerImage": "i", "maxWorkers": 1})

    assert environment_of(spec) == {
        "ACTIVITY_SWF_DOMAIN": "shop",
        "ACTIVITY_SWF_TASK_LIST": "invoices",
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL_SWF": "http://swf",
    }


def test_task_list_worker_registers_types_only_if_asked() -> None:
    source = {"swf": {"domain": "shop", "taskList": "invoices", "registerActivityTypes": True}}
    where = {"region": "eu-west-1"}
    spec = PoolSpec.model_validate({"source": source, "aws": where, "handlerImage": "i", "maxWorkers": 1})

    assert environment_of(spec)["ACTIVITY_SWF_REGISTER_ACTIVITY_TYPES"] == "true"
    assert "AWS_ENDPOINT_URL_SWF" not in environment_of(spec)


def test_unset_queue_settings_have_no_variable() -> None:
    names = environment_of(counted(redis=REDIS)).keys()

    assert not {"ACTIVITY_REDIS_NEXT_QUEUE", "ACTIVITY_REDIS_ATTRIBUTES"} & names


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("ACTIVITY_REDIS_URL", {"redis": {"flow": "f", "queue": "q", "urlSecretRef": {"name": "tasks", "key": "url"}}}),
        ("ACTIVITY_STORE_URL", {"taskStore": STORE}),
    ],
)
def test_url_from_a_secret_is_passed_as_a_reference(name: str, source: dict[str, Any]) -> None:
    assert environment_of(counted(**source))[name] == {"secretKeyRef": {"name": "tasks", "key": "url"}}


def test_step_runner_gets_store_url_and_lease_but_not_counted_tasks() -> None:
    spec = counted(taskStore={"url": "postgresql://db/tasks", "tasks": ["order"], "leaseSeconds": 20})

    assert environment_of(spec) == {"ACTIVITY_STORE_URL": "postgresql://db/tasks", "ACTIVITY_STORE_LEASE_SECONDS": "20"}


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
def test_changed_source_setting_changes_the_revision(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert revision_of(counted(**one)) != revision_of(counted(**other))


def test_changed_list_of_counted_tasks_keeps_the_revision() -> None:
    assert revision_of(counted(taskStore=STORE)) == revision_of(counted(taskStore={**STORE, "tasks": ["order"]}))


def test_default_values_do_not_change_revision_hash() -> None:
    given = {"address": "redis:6379", "flow": "images", "queue": "resize"}

    assert source_parts(counted(redis={**REDIS, "lockSeconds": 180, "renewLock": False})) == {"redis": given}
    assert source_parts(counted(taskStore=STORE)) == {"task_store": {"url_secret_ref": {"name": "tasks", "key": "url"}}}


@pytest.mark.parametrize("queue", ["$(POD_NAME)", "$$(POD_NAME)", "a$b", "$"])
def test_dollar_signs_in_queue_names_are_escaped(queue: str) -> None:
    given = str(environment_of(counted(redis={**REDIS, "queue": queue}))["ACTIVITY_REDIS_QUEUE"])

    # The kubelet expands $$ to a dollar, and $(NAME) to the value of that variable.
    assert "$(" not in given.replace("$$", "")
    assert given.replace("$$", "$") == queue
