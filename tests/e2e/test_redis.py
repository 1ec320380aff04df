"""A pool on a Redis queue: from zero to work and back, long jobs, dead workers, faults of the server."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e import deaths
from tests.e2e.faults import term
from tests.e2e.harness import ClusterHarness
from tests.e2e.jobs import COMPLETED, LOCKED, JobPool, job_pool, jobs
from tests.e2e.pool import BasePool
from tests.e2e.view import PoolView
from tests.servers.ports import free_port

pytestmark = pytest.mark.timeout(1800)

#: Longer than a machine stalls, and longer than `zeroAfterSeconds`.
LOCK_SECONDS = 25
WRONG_PASSWORD = "tr0ub4dor"


def ready(pool: JobPool, **spec: Any) -> None:
    """Apply a pool with a correct, readable Secret, and wait until its status shows it at zero."""
    pool.put_url(pool.jobs.url)
    pool.let_operator_read()
    pool.apply(**spec)
    pool.wait_until("Ready", "True", "ScaledToZero")


def test_pool_goes_from_zero_to_work_and_back_with_each_job_once(harness: ClusterHarness, namespace: str) -> None:
    with jobs(harness, "burst") as queue:
        pool = job_pool(harness, namespace, queue)
        ready(pool, maxWorkers=4)
        pool.add(12, seconds=1)
        pool.wait_completed()
        pool.wait_zero()
        burst = pool.since(0)
        pool.add(1, seconds=0)
        one = pool.eventually("wants a worker for one job", lambda view: view.decisions[-1]["desired"] == 1)
        pool.wait_completed()
        zero = pool.wait_zero()

        pool.assert_each_once()
        assert max(decision["desired"] for view in burst for decision in view.decisions) == 4
        assert max(len(view.workers) for view in burst) <= 4
        assert ", 1 waiting" in one.decisions[-1]["reason"]
        assert zero.status["backlog"] == 0


def test_long_jobs_end_while_other_workers_leave(harness: ClusterHarness, namespace: str) -> None:
    with jobs(harness, "mixed") as queue:
        pool = job_pool(harness, namespace, queue)
        ready(pool, maxWorkers=6, source={"lockSeconds": 900})
        long = pool.add(2, gated=True)
        pool.wait_running(2)
        short = pool.add(10, seconds=2)
        pool.wait_completed(short)
        left = pool.eventually("has two workers left", lambda view: len(view.workers) == 2)
        pool.let_go(left.workers)
        pool.wait_completed()
        pool.wait_empty()

        pool.assert_each_once()
        assert left.workers == queue.pods_of(long)
        assert queue.under_way(left.moment.at) == set(long)
        assert pool.peak() == 6


@pytest.mark.parametrize("comes", [deaths.kill_supervisor, deaths.delete_at_once], ids=["killed", "deleted at once"])
def test_pool_keeps_a_worker_for_the_job_of_a_dead_one(
    harness: ClusterHarness, namespace: str, comes: Callable[[BasePool, str], None]
) -> None:
    """Without the job under way, the pool would be at zero before the dead worker's lock expires."""
    with jobs(harness, "deadly") as queue:
        pool = job_pool(harness, namespace, queue)
        source = {"lockSeconds": LOCK_SECONDS, "renewLock": True, "conclude": "Atomic"}
        ready(pool, maxWorkers=2, source=source, taskHeartbeat={"intervalSeconds": 5})
        # Longer than a lock: a job whose lock is not renewed cannot be completed.
        (job,) = pool.add(1, seconds=LOCK_SECONDS + 5)
        pool.wait_running(1)
        (victim,) = queue.pods_of([job])
        pool.act()
        death = pool.mark
        comes(pool, victim)
        pool.wait_completed()
        pool.wait_empty()

        assert (queue.counts(LOCKED)[job], queue.counts(COMPLETED)[job]) == (2, 1)
        second = [event.at for event in queue.history() if event.kind == LOCKED][1]
        assert all(wanted(view) >= 1 for view in pool.since(death) if view.moment.at < second)


def wanted(view: PoolView) -> int:
    """Return the number of workers in the pool's Deployments."""
    return sum(deployment["spec"]["replicas"] for deployment in view.deployments)


def test_each_fault_is_reported_and_the_pool_works_after_the_last_fix(harness: ClusterHarness, namespace: str) -> None:
    with jobs(harness, "faulty") as queue:
        pool = job_pool(harness, namespace, queue)
        pool.add(1, seconds=0)
        since = term(harness)
        pool.apply(maxWorkers=1)
        assert "bind a Role with get on this Secret" in pool.wait_until("Ready", "False", "SecretForbidden")
        pool.let_operator_read()
        assert "Secret shop-redis in namespace" in pool.wait_until("Ready", "False", "SecretNotFound")
        pool.put_url("shop-redis:6379")
        assert "in Secret shop-redis, key url" in pool.wait_until("Ready", "False", "SecretUnusable")
        pool.put_url(queue.url_of(WRONG_PASSWORD))
        assert "correct user, password or ACL" in pool.wait_until("Ready", "False", "AccessDenied")
        pool.put_url(queue.url.replace("redis:", "rediss:"))
        assert "does it speak TLS on this port?" in pool.wait_until("Ready", "False", "TlsFailed")
        pool.put_url(queue.url_of("hunter2", free_port()))
        assert "nothing listens there" in pool.wait_until("Ready", "False", "BackendUnreachable")
        assert not any(view.workers for view in pool.since(0))

        pool.put_url(queue.url)
        pool.wait_completed()
        pool.wait_empty()
        pool.assert_each_once()
        end = pool.now
        events = [end.events(reason) for reason in ("SecretForbidden", "AccessDenied", "BackendUnreachable")]
        # A new leader repeats Warnings, and a fault that its predecessor had not reported yet may be over by then.
        assert all(len(messages) == 1 for messages in events) or term(harness) != since, events
        public = str([[view.status for view in pool.since(0)], end.moment.of_kind("Event")])
        assert "hunter2" not in public
        assert WRONG_PASSWORD not in public
