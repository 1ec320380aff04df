"""How a revision looks as a Deployment."""

from activity_operator.core.breaker import RETRY_DELAYS_SECONDS
from activity_operator.core.manifests import RenderSettings, deployment, revision_of
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
