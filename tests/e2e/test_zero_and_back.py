"""The main promise: from zero to work and back, with nothing lost."""

import pytest

from tests.e2e.pool import UNHURRIED, a_pool
from tests.e2e.stage import Stage

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images


def test_a_pool_goes_from_zero_to_work_and_back_and_every_execution_succeeds(stage: Stage, namespace: str) -> None:
    pool = a_pool(stage, namespace, "burst", task=UNHURRIED, maxWorkers=4)
    pool.wait_until("Ready", "True")
    assert not pool.workers()

    pool.executions.start(12, seconds=1, gated=True)
    pool.wait_ready(4)

    def all_done() -> bool:
        # Who comes late, in the place of another, finds its gate open as well.
        pool.let_go(pool.workers())
        return pool.executions.all_succeeded()

    def at_zero() -> bool:
        status = pool.status
        wanted = [decision["desired"] for decision in status.get("decisions", ())]
        return status.get("replicas", 0) == 0 and wanted[-1:] == [0]

    pool.wait_for("every execution succeeded", all_done)
    pool.wait_for("its status says that it is at zero", at_zero)

    pool.assert_nothing_lost()
    assert len(pool.executions.attempts()) == 12, "a task was handed out twice"
    assert pool.peak() <= 4
    assert "worker:running" in {event["name"] for event in pool.status["events"]}
