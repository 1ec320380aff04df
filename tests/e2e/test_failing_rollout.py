"""A rollout whose tasks fail on a real cluster: it is stopped, and the old image serves."""

import pytest

from tests.e2e.harness import ClusterHarness
from tests.e2e.pool import a_pool
from tests.e2e.revised import revised

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images

ALONE = {"mode": "None"}  # no sentinel: only workers poll
#: A task that the failing image gets is tried again until the other image gets it.
PERSISTENT = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 50, "BackoffRate": 1.0}]
GATE = {"maxFailureShare": 0.2, "canaryTasks": 3, "onFailure": "Rollback"}


def test_image_that_fails_its_tasks_is_stopped_and_the_old_one_serves(harness: ClusterHarness, namespace: str) -> None:
    failing = revised("failing")
    pool = a_pool(
        harness,
        namespace,
        "gated",
        task={"Retry": PERSISTENT},
        minWorkers=2,
        maxWorkers=3,
        activation=ALONE,
        rollout=GATE,
    )
    old = pool.wait_ready(2).revisions[0]
    pool.change(handlerImage=failing)
    pool.executions.start(30, seconds=2)

    message = pool.wait_until("Stalled", "True", "RolloutStopped")
    assert "fails more tasks than the old one" in message
    assert pool.wait_event("RolloutStopped").endswith("The last task failed as LookupError")
    pool.wait_done()
    pool.eventually(
        "only the old image has workers",
        lambda view: len(view.ready) == 2 and all(pod.startswith(f"{old}-") for pod in view.workers),
    )
    stopped = pool.now.status
    assert pool.now.says("Ready", "True")
    assert stopped["stoppedRevision"]
    assert stopped["runtimes"], "no worker has reported its version"
