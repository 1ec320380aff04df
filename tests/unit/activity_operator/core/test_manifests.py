"""How a revision looks as a Deployment."""

from activity_operator.core.breaker import RETRY_DELAYS_SECONDS
from activity_operator.core.manifests import RenderSettings, deployment
from tests.unit.activity_operator.core.builders import POOL, pool


def test_a_worker_that_starts_slowly_is_not_killed_for_it() -> None:
    rendered = deployment(pool(), POOL, RenderSettings("https://reports"), "r1", 1)
    probe = rendered["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]

    assert probe["initialDelaySeconds"] > RETRY_DELAYS_SECONDS[-1]
