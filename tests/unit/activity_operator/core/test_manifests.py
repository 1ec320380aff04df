"""The Deployment that a revision is rendered as."""

import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.core.breaker import RETRY_DELAYS_SECONDS
from activity_operator.core.manifests import RenderSettings, deployment, revision_of
from activity_worker.config.logging import LogSettings
from activity_worker.config.settings import read_settings
from activity_worker.contract import GRACE_MARGIN_SECONDS, TOKEN_AUDIENCE
from activity_worker.supervisor.reporter import LAST_REPORT_SECONDS
from activity_worker.wire.grace_timeout import GRACE_SECONDS
from activity_worker.wire.stepfunctions import StepFunctionsClient
from activity_worker.wire.swf import SwfClient
from activity_worker.wire.task_client import SPARE_SECONDS, TaskServiceClient
from tests.unit.activity_operator.core.builders import POOL, pool


def test_liveness_probe_starts_after_the_last_retry_delay() -> None:
    rendered = deployment(pool(), POOL, RenderSettings("https://reports"), "r1", 1)
    probe = rendered["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]

    assert probe["initialDelaySeconds"] > RETRY_DELAYS_SECONDS[-1]


FULL = pool(
    slotsPerWorker=3,
    aws={"region": "eu-west-2", "endpointUrl": "http://x"},
    taskDeadlineSeconds=9,
    serviceAccountName="w",
    podTemplate={"metadata": {"labels": {"a": "b"}}},
)


def test_revision_names_of_activity_pools_stay_as_in_the_first_version() -> None:
    assert revision_of(pool()) == "685d8867"
    assert revision_of(FULL) == "c16376d9"


def test_logging_that_differs_from_the_default_reaches_the_worker() -> None:
    usual = pool(logging={"level": "Info", "format": "Json"})
    changed = pool(logging={"level": "Debug", "format": "Text", "failures": "Name"})

    assert _log_variables(usual) == {}
    assert _log_variables(changed) == {
        "ACTIVITY_LOG_LEVEL": "debug",
        "ACTIVITY_LOG_FORMAT": "text",
        "ACTIVITY_LOG_FAILURES": "name",
    }
    settings = read_settings(
        {"activity-arn": "arn:aws:states:us-east-1:123456789012:activity:q"}, _log_variables(changed)
    )
    assert settings.logging == LogSettings("debug", "text", "name")
    assert revision_of(usual) == revision_of(pool())
    assert revision_of(changed) != revision_of(pool())


def _log_variables(spec: PoolSpec) -> dict[str, str]:
    rendered = deployment(spec, POOL, RenderSettings("https://reports"), "r1", 1)
    variables = rendered["spec"]["template"]["spec"]["containers"][0]["env"]
    return {one["name"]: one["value"] for one in variables if one["name"].startswith("ACTIVITY_LOG_")}


def test_options_that_differ_from_the_default_reach_the_worker() -> None:
    usual = pool(handler={"onError": "Fail", "cancelGraceSeconds": 5}, polling={"maxPauseSeconds": 30})
    changed = pool(
        handler={"onError": "Leave", "cancelGraceSeconds": 25}, polling={"failureThreshold": 7, "maxPauseSeconds": 9}
    )
    settings = read_settings({}, _variables(changed))

    assert _variables(usual) == _variables(pool())
    assert (settings.on_error, settings.cancel_grace_seconds) == ("leave", 25.0)
    assert (settings.poll_attempts, settings.poll_max_pause_seconds) == (7, 9.0)
    assert revision_of(usual) == revision_of(pool())
    assert len({revision_of(pool(**{part: {name: value}})) for part, name, value in OPTIONS}) == len(OPTIONS)


OPTIONS = (
    ("handler", "onError", "Leave"),
    ("handler", "cancelGraceSeconds", 6),
    ("polling", "failureThreshold", 6),
    ("polling", "maxPauseSeconds", 6),
    ("logging", "level", "Debug"),
)


def test_longer_cancel_grace_lengthens_the_pods_grace_period() -> None:
    def grace(**changes: object) -> object:
        rendered = deployment(pool(**changes), POOL, RenderSettings("https://reports"), "r1", 1)
        return rendered["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]

    assert grace() == grace(handler={"cancelGraceSeconds": 0}) == 1800 + GRACE_MARGIN_SECONDS
    assert grace(handler={"cancelGraceSeconds": 65}) == 1800 + GRACE_MARGIN_SECONDS + 60


def _variables(spec: PoolSpec) -> dict[str, str]:
    rendered = deployment(spec, POOL, RenderSettings("https://reports"), "r1", 1)
    variables = rendered["spec"]["template"]["spec"]["containers"][0]["env"]
    return {one["name"]: one["value"] for one in variables if "value" in one and "REPORT" not in one["name"]}


def test_environment_variables_keep_the_order_of_the_first_version() -> None:
    """Another order is another Pod template, and would replace every worker."""
    rendered = deployment(FULL, POOL, RenderSettings("https://reports"), "r1", 1)
    names = [one["name"] for one in rendered["spec"]["template"]["spec"]["containers"][0]["env"]]

    assert names[:6] == [
        "ACTIVITY_ARN",
        "ACTIVITY_SLOTS",
        "AWS_REGION",
        "AWS_ENDPOINT_URL_SFN",
        "ACTIVITY_TASK_HEARTBEAT_SECONDS",
        "ACTIVITY_TASK_DEADLINE_SECONDS",
    ]


def test_worker_pod_has_only_the_rights_it_needs() -> None:
    """SECURITY.md promises these settings; the tests with generated hostile pods cover what users add."""
    pod = deployment(pool(), POOL, RenderSettings("https://reports"), "r1", 1)["spec"]["template"]["spec"]
    (worker,) = pod["containers"]

    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert worker["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    tokens = [one["serviceAccountToken"] for one in pod["volumes"][0]["projected"]["sources"][:1]]
    assert [token["audience"] for token in tokens] == [TOKEN_AUDIENCE]


def test_user_containers_are_as_restricted_as_the_worker() -> None:
    side = {"name": "side", "image": "s", "securityContext": {"runAsUser": 7, "capabilities": {"drop": ["NET_RAW"]}}}
    template = {"spec": {"containers": [side], "initContainers": [{"name": "first", "image": "f"}]}}
    pod = deployment(pool(podTemplate=template), POOL, RenderSettings("https://reports"), "r1", 1)["spec"]["template"]

    worker, other = pod["spec"]["containers"]
    (first,) = pod["spec"]["initContainers"]
    assert worker["name"] == "worker"
    for container in (worker, other, first):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert other["securityContext"]["runAsUser"] == 7


def test_unmergeable_template_is_rendered_and_left_to_the_api_server() -> None:
    template = {"spec": {"containers": [{"name": ["x"]}, "worker", {"name": "worker", "ports": [{"name": {}}]}]}}
    rendered = deployment(pool(podTemplate=template), POOL, RenderSettings("https://reports"), "r1", 1)

    assert rendered["spec"]["template"]["spec"]["containers"][0]["name"] == "worker"


@pytest.mark.parametrize(("client", "spare_seconds"), [(StepFunctionsClient, 5), (SwfClient, 4)])
def test_grace_margin_covers_an_open_poll_and_the_last_report(
    client: type[TaskServiceClient], spare_seconds: int
) -> None:
    """With `drain.timeoutSeconds` 0 the margin is the whole grace period."""
    poll = client.min_read_timeout_seconds + SPARE_SECONDS

    assert poll + GRACE_SECONDS + LAST_REPORT_SECONDS + spare_seconds <= GRACE_MARGIN_SECONDS
