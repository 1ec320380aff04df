"""The API server refuses an unusable pool at apply, with a message that names the fix."""

from typing import Any

import pytest

from activity_operator.api.arn import arn_problems
from tests.integration.crd.arrange import Kubectl, pool
from tests.unit.activity_operator.api.arn_cases import GOOD_ARN, MALFORMED, WELL_FORMED

OTHER_ARN = GOOD_ARN.replace("resize-images", "another")
IN_SOURCE = {"stepFunctions": {"activityArn": GOOD_ARN}}
URL_SECRET = {"name": "server", "key": "url"}
BROKER = {"addresses": ["taskbroker:50051"]}
REDIS = {"address": "redis:6379", "flow": "images", "queue": "resize"}
SWF = {"domain": "shop", "taskList": "invoices"}
STORE = {"urlSecretRef": URL_SECRET}
PROMETHEUS = {"serverUrl": "http://prometheus.monitoring:9090", "query": "sum(waiting) or vector(0)"}

DAY = {"name": "day", "startCron": "0 8 * * 1-5", "endCron": "0 18 * * 1-5", "minWorkers": 1}
ONCE = {"name": "sale", "startTime": "2026-11-27T00:00:00Z", "endTime": "2026-11-28T00:00:00Z", "minWorkers": 1}


def counted(**changes: Any) -> dict[str, Any]:
    """Return a pool with the given source and these changes to its spec."""
    source = {
        name: changes.pop(name)
        for name in ("swf", "redis", "taskStore", "taskbroker", "stepFunctions")
        if name in changes
    }
    return pool(activityArn=None, source=source, **changes)


@pytest.mark.parametrize("text", [case[1] for case in MALFORMED], ids=[case[0] for case in MALFORMED])
def test_malformed_arn_is_refused_with_the_operators_message(cluster_kubectl: Kubectl, text: str) -> None:
    short = cluster_kubectl.dry_run(pool(activityArn=text))
    long = cluster_kubectl.dry_run(pool(activityArn=None, source={"stepFunctions": {"activityArn": text}}))

    sentences = list(arn_problems(text))
    assert sentences
    for sentence in sentences:
        assert sentence in short.err
        assert sentence in long.err
    assert "spec.activityArn" in short.err
    assert "spec.source.stepFunctions.activityArn" in long.err


@pytest.mark.parametrize("text", WELL_FORMED)
def test_valid_arn_is_accepted_in_both_forms(cluster_kubectl: Kubectl, text: str) -> None:
    assert cluster_kubectl.dry_run(pool(activityArn=text)).ok
    assert cluster_kubectl.dry_run(pool(activityArn=None, source={"stepFunctions": {"activityArn": text}})).ok


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"minWorkers": 9}, "spec.minWorkers", "minWorkers 9 is greater than maxWorkers 5; lower it or raise"),
        ({"source": IN_SOURCE}, "spec", "activityArn and source are both set; keep exactly one of them"),
        ({"activityArn": None}, "spec", "neither activityArn nor source is set; set exactly one of them"),
        ({"activityArn": None, "source": {}}, "spec.source", "source needs exactly one member of: stepFunctions"),
        ({"activation": {"mode": "None"}}, "spec.minWorkers", "activation.mode None needs minWorkers of at least 1"),
        ({"activation": {"mode": "Prometheus"}}, "spec.activation.mode", '"Sentinel", "CloudWatch", "None"'),
        ({"maxWorkers": 0}, "spec.maxWorkers", "greater than or equal to 1"),
        ({"maxWorkers": 1001}, "spec.maxWorkers", "less than or equal to 1000"),
        ({"maxWorkers": None}, "spec.maxWorkers", "Required value"),
        ({"handlerImage": None}, "spec.handlerImage", "Required value"),
        ({"handlerImage": "a b"}, "spec.handlerImage", "handlerImage 'a b' has a space"),
        ({"handlerImage": "a$b"}, "spec.handlerImage", "handlerImage 'a$b' has a character that no image"),
        ({"handlerImage": "a\u0085b"}, "spec.handlerImage", "handlerImage has a character that no image"),
        ({"handler": {"onError": "Retry"}}, "spec.handler.onError", '"Fail", "Leave"'),
        ({"handler": {"cancelGraceSeconds": 601}}, "spec.handler.cancelGraceSeconds", "less than or equal to 600"),
        ({"polling": {"failureThreshold": 0}}, "spec.polling.failureThreshold", "greater than or equal to 1"),
        ({"polling": {"maxPauseSeconds": 0}}, "spec.polling.maxPauseSeconds", "greater than or equal to 1"),
        ({"slotsPerWorker": 0}, "spec.slotsPerWorker", "greater than or equal to 1"),
        ({"scaling": {"targetUtilization": 0}}, "spec.scaling.targetUtilization", "must be from 0.01 to 1"),
        ({"scaling": {"targetUtilization": 0.001}}, "spec.scaling.targetUtilization", "must be from 0.01 to 1"),
        ({"scaling": {"targetUtilization": 1.5}}, "spec.scaling.targetUtilization", "less than or equal to 1"),
        (
            {"scaling": {"activationThreshold": 5}},
            "spec.scaling.activationThreshold",
            "scaling.activationThreshold 5 needs a count of the waiting tasks",
        ),
        (
            {"scaling": {"activationThreshold": 5}, "activation": {"mode": "CloudWatch"}, "minWorkers": 1},
            "spec.scaling.activationThreshold",
            "has no effect with minWorkers 1",
        ),
        (
            {"scaling": {"activationThreshold": 5, "idleWorkers": 2}, "activation": {"mode": "CloudWatch"}},
            "spec.scaling.activationThreshold",
            "has no effect with scaling.idleWorkers 2",
        ),
        (
            {"scaling": {"idleWorkers": 6}},
            "spec.scaling.idleWorkers",
            "scaling.idleWorkers 6 is greater than maxWorkers 5",
        ),
        (
            {"scaling": {"throughput": {"secondsPerTask": 0.0001}}},
            "spec.scaling.throughput.secondsPerTask",
            "must be at least 0.001",
        ),
        (
            {"scaling": {"schedules": [{"name": "day", "startCron": "0 8 * * *", "minWorkers": 1}]}},
            "spec.scaling.schedules[0]",
            "schedule day needs either startCron and endCron, or startTime and endTime",
        ),
        (
            {"scaling": {"schedules": [{**DAY, "minWorkers": None}]}},
            "spec.scaling.schedules[0]",
            "schedule day needs minWorkers, maxWorkers or both",
        ),
        (
            {"scaling": {"schedules": [{**DAY, "minWorkers": 9}]}},
            "spec.scaling.schedules",
            "a schedule has more workers than the pool's maxWorkers",
        ),
        (
            {"scaling": {"schedules": [{**DAY, "minWorkers": 3, "maxWorkers": 2}]}},
            "spec.scaling.schedules[0].minWorkers",
            "minWorkers 3 of schedule day is greater than its maxWorkers 2",
        ),
        (
            {"scaling": {"schedules": [{**DAY, "startCron": "08:00"}]}},
            "spec.scaling.schedules[0].startCron",
            "'08:00' is no cron expression of five fields; write one such as 0 8 * * 1-5",
        ),
        (
            {"scaling": {"schedules": [{**DAY, "timeZone": "Europe/Berlin or so"}]}},
            "spec.scaling.schedules[0].timeZone",
            "'Europe/Berlin or so' is no time zone",
        ),
        (
            {"scaling": {"schedules": [ONCE | {"endTime": "2026-11-26T00:00:00Z"}]}},
            "spec.scaling.schedules[0].endTime",
            "endTime of schedule sale must be after its startTime",
        ),
        (
            {"scaling": {"schedules": [DAY, DAY]}},
            "spec.scaling.schedules[1]",
            "Duplicate value",
        ),
        (
            {"scaling": {"schedules": [{**DAY, "minWorkers": 0}]}, "activation": {"mode": "None"}, "minWorkers": 1},
            "spec.scaling.schedules",
            "activation.mode None needs at least 1 worker in every schedule",
        ),
        ({"scaling": {"freeze": "Up"}}, "spec.scaling.freeze", '"None", "ScaleUp", "ScaleDown", "Both"'),
        ({"scaling": {"mode": "Off"}}, "spec.scaling.mode", '"Auto", "Recommend"'),
        ({"aws": {"region": "US East"}}, "spec.aws.region", "'US East' is not a region; write one such as us-east-1"),
        ({"aws": {"endpointUrl": "states:443"}}, "spec.aws.endpointUrl", "must be an http or https URL"),
        ({"aws": {"endpointUrl": "https://me:secret@a"}}, "spec.aws.endpointUrl", "without credentials"),
        ({"aws": {"cloudWatchEndpointUrl": "me"}}, "spec.aws.cloudWatchEndpointUrl", "must be an http or https URL"),
        ({"aws": {"roleArn": "arn:aws:iam::1:user/a"}}, "spec.aws.roleArn", "is not the ARN of an IAM role"),
        ({"serviceAccountName": "A_b"}, "spec.serviceAccountName", "'A_b' is not the name of a ServiceAccount"),
        (
            {"podTemplate": {"metadata": {"labels": {"activitypools.dev/pool": "x"}}}},
            "spec.podTemplate.metadata.labels",
            "keys under activitypools.dev/ are the operator's own; remove 'activitypools.dev/pool'",
        ),
        (
            {"podTemplate": {"metadata": {"annotations": {"activitypools.dev/a": "x"}}}},
            "spec.podTemplate.metadata.annotations",
            "keys under activitypools.dev/ are the operator's own; remove 'activitypools.dev/a'",
        ),
    ],
)
def test_unusable_spec_is_refused_with_its_field_and_the_fix(
    cluster_kubectl: Kubectl, changes: dict[str, Any], field: str, sentence: str
) -> None:
    answer = cluster_kubectl.dry_run(pool(**changes))

    assert not answer.ok
    assert f"{field}: " in answer.err
    assert sentence in answer.err


EITHER_URL = "exactly one of them"
IN_SECRET = "a URL with a password belongs into a Secret (urlSecretRef)"


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        (
            {"redis": REDIS, "taskStore": STORE},
            "spec.source",
            "source needs exactly one member of: stepFunctions, swf, redis, taskStore, taskbroker",
        ),
        ({"swf": SWF}, "spec.aws", "source.swf needs aws.region: write the domain's region, such as us-east-1"),
        ({"swf": SWF, "aws": {"endpointUrl": "http://a"}}, "spec.aws", "source.swf needs aws.region"),
        (
            {"swf": SWF, "aws": {"region": "eu-west-1", "cloudWatchEndpointUrl": "http://a"}},
            "spec.aws",
            "aws.cloudWatchEndpointUrl is for Step Functions activities; source.swf does not use it: remove it",
        ),
        ({"swf": {"domain": "shop"}, "aws": {"region": "eu-west-1"}}, "spec.source.swf.taskList", "Required value"),
        (
            {"swf": {**SWF, "domain": "a:b"}, "aws": {"region": "eu-west-1"}},
            "spec.source.swf.domain",
            "'a:b' is no name in Amazon SWF; it has no :, /, |, control character or outer space, and is not arn",
        ),
        ({"swf": {**SWF, "taskList": "arn"}, "aws": {"region": "eu-west-1"}}, "spec.source.swf.taskList", "'arn' is"),
        ({"swf": {**SWF, "taskList": "a "}, "aws": {"region": "eu-west-1"}}, "spec.source.swf.taskList", "'a ' is no"),
        ({"swf": {**SWF, "taskList": "a\u0085"}, "aws": {"region": "eu-west-1"}}, "spec.source.swf.taskList", "is no"),
        (
            {"swf": SWF, "aws": {"region": "eu-west-1"}, "activation": {"mode": "CloudWatch"}},
            "spec.activation.mode",
            "counts a Step Functions activity's tasks; this source is counted by itself: remove activation.mode",
        ),
        (
            {"swf": SWF, "aws": {"region": "eu-west-1"}, "activation": {"holdSeconds": 5}},
            "spec.activation.holdSeconds",
            "is for tasks that the operator holds; it takes none from this source: remove it",
        ),
        (
            {"swf": {**SWF, "pollAtZero": True}, "aws": {"region": "eu-west-1"}, "scaling": {"activationThreshold": 5}},
            "spec.scaling.activationThreshold",
            "needs a count of the waiting tasks",
        ),
        ({"redis": {"flow": "f", "queue": "q"}}, "spec.source.redis", "neither urlSecretRef nor address is set; set"),
        (
            {"redis": {**REDIS, "urlSecretRef": URL_SECRET}},
            "spec.source.redis",
            f"urlSecretRef and address are both set; keep {EITHER_URL}",
        ),
        ({"redis": {"address": "redis:6379", "queue": "q"}}, "spec.source.redis.flow", "Required value"),
        ({"redis": {**REDIS, "address": "redis://redis:6379"}}, "spec.source.redis.address", IN_SECRET),
        ({"redis": {**REDIS, "address": "me:secret@redis:6379"}}, "spec.source.redis.address", IN_SECRET),
        ({"redis": {**REDIS, "address": "redis"}}, "spec.source.redis.address", "must be HOST:PORT, such as redis:"),
        ({"redis": {**REDIS, "queue": "a b"}}, "spec.source.redis.queue", "'a b' has a space, a comma or"),
        ({"redis": {**REDIS, "queue": "a\u0085b"}}, "spec.source.redis.queue", "has a space, a comma or a control"),
        ({"redis": {**REDIS, "attributes": ["c", "a,b"]}}, "spec.source.redis.attributes", "'a,b' has a space, a"),
        ({"redis": {**REDIS, "lockSeconds": 0}}, "spec.source.redis.lockSeconds", "greater than or equal to 1"),
        ({"redis": {**REDIS, "blockSeconds": 61}}, "spec.source.redis.blockSeconds", "less than or equal to 60"),
        ({"redis": {**REDIS, "conclude": "Lua"}}, "spec.source.redis.conclude", '"Dialect", "Atomic"'),
        ({"taskbroker": {}}, "spec.source.taskbroker.addresses", "Required value"),
        ({"taskbroker": {"addresses": []}}, "spec.source.taskbroker.addresses", "at least 1 items"),
        ({"taskbroker": {"addresses": ["b:1", "b:1"]}}, "spec.source.taskbroker.addresses[1]", "Duplicate value"),
        ({"taskbroker": {"addresses": ["b:1", "b"]}}, "spec.source.taskbroker.addresses", "'b' is not HOST:PORT, such"),
        (
            {"taskbroker": {"addresses": ["unix:/run/b.sock"]}},
            "spec.source.taskbroker.addresses",
            "'unix:/run/b.sock' is not HOST:PORT",
        ),
        ({"taskbroker": {**BROKER, "namespace": "a\u0085b"}}, "spec.source.taskbroker.namespace", "has a control char"),
        (
            {"taskbroker": {**BROKER, "caSecretRef": URL_SECRET}},
            "spec.source.taskbroker.caSecretRef",
            "caSecretRef needs tls: set tls to true",
        ),
        (
            {"taskbroker": {**BROKER, "delivery": "Push"}},
            "spec.source.taskbroker.delivery",
            "delivery Push needs signingSecretRef",
        ),
        (
            {"taskbroker": {**BROKER, "pushTlsSecretName": "push"}},
            "spec.source.taskbroker.pushTlsSecretName",
            "pushTlsSecretName needs delivery Push: set delivery to Push",
        ),
        ({"taskbroker": BROKER, "aws": {"region": "us-east-1"}}, "spec", "this source does not use it: remove it"),
        ({"taskStore": {}}, "spec.source.taskStore", f"neither urlSecretRef nor url is set; set {EITHER_URL}"),
        (
            {"taskStore": {**STORE, "url": "postgresql://db/tasks"}},
            "spec.source.taskStore",
            f"urlSecretRef and url are both set; keep {EITHER_URL}",
        ),
        (
            {"taskStore": {"url": "sqlite:///tasks.db"}},
            "spec.source.taskStore.url",
            "cannot be SQLite, which no other pod can reach; use postgresql://USER@HOST:PORT/DATABASE",
        ),
        ({"taskStore": {"url": "postgresql://me:secret@db:5432/tasks"}}, "spec.source.taskStore.url", IN_SECRET),
        ({"taskStore": {"url": "postgresql://db/tasks?Password=secret"}}, "spec.source.taskStore.url", IN_SECRET),
        ({"taskStore": {"url": "postgresql://db"}}, "spec.source.taskStore.url", "postgresql://USER@HOST:PORT/DATABASE"),
        ({"taskStore": {"url": "mysql://db/tasks"}}, "spec.source.taskStore.url", "must look like postgresql://"),
        ({"taskStore": {"urlSecretRef": {"name": "a"}}}, "spec.source.taskStore.urlSecretRef.key", "Required value"),
        ({"taskStore": {**STORE, "leaseSeconds": 0}}, "spec.source.taskStore.leaseSeconds", "greater than or equal to"),
        (
            {"redis": REDIS, "activation": {"mode": "CloudWatch"}},
            "spec.activation.mode",
            "counts a Step Functions activity's tasks; this source is counted by itself: remove activation.mode",
        ),
        (
            {"redis": REDIS, "activation": {"mode": "None"}},
            "spec.minWorkers",
            "activation.mode None needs minWorkers of at least 1",
        ),
        ({"redis": REDIS, "aws": {"region": "us-east-1"}}, "spec", "this source does not use it: remove it"),
        ({"redis": REDIS, "aws": {"endpointUrl": "http://a"}}, "spec", "aws is for Step Functions activities"),
        ({"taskStore": STORE, "aws": {"cloudWatchEndpointUrl": "http://a"}}, "spec", "aws is for Step Functions"),
        (
            {"taskStore": STORE, "aws": {"roleArn": "arn:aws:iam::123456789012:role/a"}},
            "spec",
            "aws is for Step Functions activities and Amazon SWF; this source does not use it: remove it",
        ),
        (
            {"taskStore": STORE, "activation": {"holdSeconds": 5}},
            "spec.activation.holdSeconds",
            "is for tasks that the operator holds; it takes none from this source: remove it",
        ),
        (
            {"redis": REDIS, "scaling": {"prometheus": {**PROMETHEUS, "serverUrl": "http://me:secret@prometheus"}}},
            "spec.scaling.prometheus.serverUrl",
            "must be an http or https URL without credentials and query, such as http://prometheus.monitoring:9090",
        ),
        ({"redis": REDIS, "scaling": {"prometheus": {**PROMETHEUS, "serverUrl": "prometheus:9090"}}},
            "spec.scaling.prometheus.serverUrl", "must be an http or https URL"),
        ({"redis": REDIS, "scaling": {"prometheus": {"serverUrl": "http://a"}}},
            "spec.scaling.prometheus.query", "Required value"),
        ({"redis": REDIS, "scaling": {"prometheus": {**PROMETHEUS, "intervalSeconds": 0}}},
            "spec.scaling.prometheus.intervalSeconds", "greater than or equal to 1"),
    ],
)  # fmt: skip
def test_unusable_counted_source_is_refused_with_field_and_fix(
    cluster_kubectl: Kubectl, changes: dict[str, Any], field: str, sentence: str
) -> None:
    answer = cluster_kubectl.dry_run(counted(**dict(changes)))

    assert not answer.ok
    assert f"{field}: " in answer.err
    assert sentence in answer.err


@pytest.mark.parametrize(
    "changes",
    [
        {"redis": REDIS},
        {"redis": {**REDIS, "address": "[fd00::1]:6379"}},
        {"redis": {"flow": "images", "queue": "a:b", "urlSecretRef": URL_SECRET, "conclude": "Atomic"}},
        {"redis": REDIS, "minWorkers": 1, "activation": {"mode": "None"}},
        {"redis": REDIS, "aws": {}},
        {"swf": SWF, "aws": {"region": "eu-west-1"}},
        {"swf": SWF, "aws": {"region": "eu-west-1"}, "scaling": {"activationThreshold": 5}},
        {"swf": {**SWF, "pollAtZero": True}, "aws": {"region": "eu-west-1"}, "activation": {"holdSeconds": 5}},
        {
            "swf": {"domain": "867530901", "taskList": "ChargeCreditCard v0.1,$x", "registerActivityTypes": True},
            "aws": {"region": "eu-west-1", "endpointUrl": "http://swf", "roleArn": "arn:aws:iam::123456789012:role/a"},
        },
        {"taskStore": STORE},
        {"taskStore": {"url": "postgresql://tasks@db:5432/tasks"}},
        {"taskStore": {"url": "postgresql://db.shop.svc/tasks?sslmode=require&application_name=pool"}},
        {"taskStore": {**STORE, "tasks": ["order"], "leaseSeconds": 5}},
        {"taskStore": STORE, "scaling": {"prometheus": {**PROMETHEUS, "tokenSecretRef": URL_SECRET}}},
        {"stepFunctions": {"activityArn": GOOD_ARN}, "scaling": {"prometheus": PROMETHEUS}},
    ],
)
def test_valid_counted_source_is_accepted(cluster_kubectl: Kubectl, changes: dict[str, Any]) -> None:
    answer = cluster_kubectl.dry_run(counted(**dict(changes)))

    assert answer.ok, answer.err


@pytest.mark.parametrize(
    "changes",
    [
        {"minWorkers": 5},
        {"minWorkers": 1, "activation": {"mode": "None"}},
        {"activation": {"mode": "CloudWatch"}, "aws": {"cloudWatchEndpointUrl": "http://127.0.0.1:4566"}},
        {"replicas": 50},
        {"replicas": 0},
        {"aws": {"endpointUrl": "http://127.0.0.1:4566", "roleArn": "arn:aws:iam::123456789012:role/path/name"}},
        {"podTemplate": {"metadata": {"labels": {"team": "images"}}, "spec": {"nodeSelector": {"disk": "ssd"}}}},
    ],
)
def test_limits_of_valid_values_are_accepted(cluster_kubectl: Kubectl, changes: dict[str, Any]) -> None:
    answer = cluster_kubectl.dry_run(pool(**changes))

    assert answer.ok, answer.err


def test_name_may_have_47_characters_and_48_are_refused(cluster_kubectl: Kubectl) -> None:
    assert cluster_kubectl.dry_run(pool("p" * 47)).ok
    refused = cluster_kubectl.dry_run(pool("p" * 48))
    assert "the name has 48 characters; a pool's name has at most 47" in refused.err
    assert "metadata.name" in refused.err


@pytest.mark.parametrize("name", ["1st", "resize.images"])
def test_name_that_is_no_service_name_is_refused(cluster_kubectl: Kubectl, name: str) -> None:
    assert f"the name '{name}' does not fit" in cluster_kubectl.dry_run(pool(name)).err


def test_activity_is_immutable_and_the_message_names_it(kubectl: Kubectl) -> None:
    kubectl.apply(pool())

    for changed in (
        pool(activityArn=OTHER_ARN),
        pool(activityArn=None, source={"stepFunctions": {"activityArn": OTHER_ARN}}),
    ):
        refused = kubectl.dry_run(changed)
        assert f"the activity's ARN cannot be changed (it is {GOOD_ARN}); make a new pool" in refused.err


def test_same_activity_may_change_between_its_two_forms(kubectl: Kubectl) -> None:
    kubectl.apply(pool())

    moved = kubectl.apply(pool(activityArn=None, source=IN_SOURCE))
    assert "activityArn" not in moved["spec"]
    assert kubectl.apply(pool())["spec"]["activityArn"] == GOOD_ARN


def test_everything_else_can_be_changed(kubectl: Kubectl) -> None:
    kubectl.apply(pool())

    changed = kubectl.apply(pool(handlerImage="registry.example.com/resize:2", maxWorkers=9, paused=True))
    assert changed["metadata"]["generation"] == 2


@pytest.mark.parametrize("source", [{"redis": REDIS}, {"taskStore": STORE}], ids=lambda source: str(next(iter(source))))
def test_source_cannot_change_between_activity_and_counted(kubectl: Kubectl, source: dict[str, Any]) -> None:
    kubectl.apply(pool())
    refused = kubectl.dry_run(pool(activityArn=None, source=source))
    assert f"the activity (it is {GOOD_ARN}) cannot be changed to another source; make a new pool" in refused.err

    kubectl.apply({**pool(activityArn=None, source=source), "metadata": {"name": "counted"}})
    refused = kubectl.dry_run({**pool(), "metadata": {"name": "counted"}})
    assert "this source cannot be changed to an activity; make a new pool for it" in refused.err


def test_task_list_is_immutable_and_the_message_names_it(kubectl: Kubectl) -> None:
    where = {"region": "eu-west-1"}
    kubectl.apply(counted(swf=SWF, aws=where))
    unchangeable = "domain and task list cannot be changed (they are shop/invoices); make a new pool"

    assert unchangeable in kubectl.dry_run(counted(swf={**SWF, "taskList": "letters"}, aws=where)).err
    assert unchangeable in kubectl.dry_run(counted(swf={**SWF, "domain": "books"}, aws=where)).err
    assert unchangeable in kubectl.dry_run(counted(redis=REDIS)).err
    changed = counted(swf={**SWF, "pollAtZero": True}, aws={**where, "endpointUrl": "http://swf"})
    assert kubectl.apply(changed)["metadata"]["generation"] == 2


def test_other_source_cannot_be_changed_to_a_task_list(kubectl: Kubectl) -> None:
    kubectl.apply(counted(redis=REDIS))
    refused = kubectl.dry_run(counted(swf=SWF, aws={"region": "eu-west-1"}))

    assert "this source cannot be changed to a task list of Amazon SWF; make a new pool for it" in refused.err


def test_queue_and_server_of_a_counted_source_can_be_changed(kubectl: Kubectl) -> None:
    kubectl.apply(counted(redis=REDIS))

    assert kubectl.apply(counted(redis={**REDIS, "queue": "crop"}))["metadata"]["generation"] == 2
    assert kubectl.apply(counted(redis={**REDIS, "address": "another:6379"}))["metadata"]["generation"] == 3
    assert kubectl.apply(counted(taskStore=STORE))["spec"]["source"]["taskStore"]["leaseSeconds"] == 60
