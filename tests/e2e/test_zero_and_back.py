"""The main promise: a pool goes from zero to work and back without losing a task."""

import pytest

from tests.e2e.harness import ClusterHarness
from tests.e2e.pool import UNHURRIED, a_pool

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images


def test_pool_goes_from_zero_to_work_and_back_and_loses_nothing(harness: ClusterHarness, namespace: str) -> None:
    pool = a_pool(harness, namespace, "burst", task=UNHURRIED, maxWorkers=4)
    pool.wait_until("Ready", "True")
    assert not pool.now.workers

    pool.executions.start(12, seconds=1, gated=True)
    busy = pool.wait_ready(4)
    pool.let_go(busy.workers)
    pool.wait_done()
    pool.wait_zero()

    pool.assert_nothing_lost()
    assert len(pool.executions.attempts()) == 12, "a task was handed out twice"
    assert pool.peak() == 4
    assert max(len(view.workers) for view in pool.since(0)) == 4
    assert "worker:running" in {event["name"] for event in pool.now.lifecycle}
