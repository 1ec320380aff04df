"""How a revision looks as a Deployment."""

from activity_operator.core.breaker import RETRY_DELAYS_SECONDS
from activity_operator.core.manifests import RenderSettings, deployment, revision_of
from activity_worker.contract import TOKEN_AUDIENCE
from tests.unit.activity_operator.core.builders import POOL, pool


def test_a_worker_that_starts_slowly_is_not_killed_for_it() -> None:
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


def test_revisions_of_activities_have_the_names_that_the_first_version_gave_them() -> None:
    assert revision_of(pool()) == "685d8867"
    assert revision_of(FULL) == "c16376d9"


def test_the_variables_stand_in_the_order_of_the_first_version_since_another_is_another_template() -> None:
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


def test_a_worker_has_no_right_that_it_does_not_need() -> None:
    """What SECURITY.md says of pods; the generator of hostile pods looks at what users add."""
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


def test_containers_of_the_users_own_are_as_restricted_as_the_worker() -> None:
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


def test_a_template_that_nobody_could_merge_is_rendered_for_the_api_server_to_judge() -> None:
    template = {"spec": {"containers": [{"name": ["x"]}, "worker", {"name": "worker", "ports": [{"name": {}}]}]}}
    rendered = deployment(pool(podTemplate=template), POOL, RenderSettings("https://reports"), "r1", 1)

    assert rendered["spec"]["template"]["spec"]["containers"][0]["name"] == "worker"
