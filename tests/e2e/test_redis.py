"""A pool on a Redis queue, end to end: from zero to work and back, workers that leave or die, faults on the way."""

from collections.abc import Callable

import pytest

from tests.e2e import deaths
from tests.e2e.faults import term
from tests.e2e.jobs import JobPool, job_pool, jobs
from tests.e2e.pool import PATIENCE, Pool
from tests.e2e.stage import Stage
from tests.servers.ports import free_port

pytestmark = pytest.mark.timeout(1800)

#: More than a machine stalls, and more than `zeroAfterSeconds`.
LOCK_SECONDS = 40


def ready(pool: JobPool, url: str, **spec: object) -> None:
    """Apply a pool that may read its Secret, and wait until it says that it is at zero."""
    pool.keep_url(url)
    pool.let_read()
    pool.apply(**spec)
    pool.wait_until("Ready", "True", "ScaledToZero")


def test_a_pool_goes_from_zero_to_work_and_back_and_every_job_is_completed_once(stage: Stage, namespace: str) -> None:
    with jobs(stage, "burst") as queue:
        pool = job_pool(stage, namespace, queue)
        ready(pool, queue.url, maxWorkers=4)
        queue.add(12, seconds=1)
        # Now: the status keeps the last decisions only.
        pool.wait_for("it grows to its limit", lambda: pool.peak() == 4)
        pool.wait_completed()
        pool.wait_empty()
        queue.add(1, seconds=0)
        pool.wait_completed()
        pool.wait_empty()

        pool.assert_each_once()
        status = pool.status
        assert pool.peak() <= 4
        assert status["backlog"] == 0
        assert {"1 waiting" in decision["reason"] for decision in status["decisions"]} == {True, False}


def test_workers_with_long_jobs_finish_them_while_the_others_leave(stage: Stage, namespace: str) -> None:
    with jobs(stage, "mixed") as queue:
        pool = job_pool(stage, namespace, queue)
        ready(pool, queue.url, maxWorkers=6, source={"lockSeconds": 900})
        long = queue.add(2, gated=True)
        pool.wait_taken(2)
        queue.add(10, seconds=2)
        pool.wait_for("it grows to its limit", lambda: pool.peak() == 6)
        pool.wait_for("only workers with long jobs are left", lambda: _left(pool) == (2, 2, 10))
        pool.let_go(pool.workers())
        pool.wait_completed()
        pool.wait_empty()

        pool.assert_each_once()
        assert len(queue.pods(long)) == 2
        assert pool.peak() <= 6


def _left(pool: JobPool) -> tuple[int, int, int]:
    """Return how many pods there are, how many jobs are under way, and how many have been completed."""
    assert pool.jobs is not None
    _, completed = pool.jobs.seen()
    return len(pool.workers()), pool.jobs.taken(), len(completed)


@pytest.mark.parametrize("comes", [deaths.kill_supervisor, deaths.delete_at_once], ids=["killed", "deleted at once"])
def test_a_job_of_a_dead_worker_is_completed_by_another_and_the_pool_stays_for_it(
    stage: Stage, namespace: str, comes: Callable[[Pool, str], None]
) -> None:
    """The pool would be at zero before the dead worker's lock runs out, were it not for the job under way."""
    with jobs(stage, "deadly") as queue:
        pool = job_pool(stage, namespace, queue)
        source = {"lockSeconds": LOCK_SECONDS, "renewLock": True, "conclude": "Atomic"}
        ready(pool, queue.url, maxWorkers=2, source=source, taskHeartbeat={"intervalSeconds": 5})
        # Twice as long as the lock: it is renewed, or another worker would take the job.
        (job,) = queue.add(1, seconds=2 * LOCK_SECONDS)
        pool.wait_taken(1)
        (victim,) = pool.workers()
        comes(pool, victim)
        pool.wait_completed()
        pool.wait_empty()

        locked, completed = queue.seen()
        assert (locked[job], completed[job]) == (2, 1)


def test_each_fault_on_the_way_to_a_queue_is_said_and_the_pool_runs_when_the_last_is_corrected(
    stage: Stage, namespace: str
) -> None:
    with jobs(stage, "faulty") as queue:
        pool = job_pool(stage, namespace, queue)
        queue.add(1, seconds=0)
        since = term(stage)
        pool.apply(maxWorkers=1)
        _says(pool, "SecretForbidden", "bind a Role with get on this Secret")
        pool.let_read()
        _says(pool, "SecretNotFound", "Secret shop-redis in namespace")
        pool.keep_url("shop-redis:6379")
        _says(pool, "SecretUnusable", "in Secret shop-redis, key url")
        pool.keep_url(queue.url_of("tr0ub4dor"))
        _says(pool, "AccessDenied", "correct user, password or ACL")
        pool.keep_url(queue.url.replace("redis:", "rediss:"))
        _says(pool, "TlsFailed", "does it speak TLS on this port?")
        pool.keep_url(queue.url_of("hunter2", free_port()))
        _says(pool, "BackendUnreachable", "nothing listens there")
        assert not pool.workers()

        pool.keep_url(queue.url)
        pool.wait_completed()
        pool.wait_empty()
        pool.assert_each_once()
        told = [pool.events(reason) for reason in ("SecretForbidden", "AccessDenied", "BackendUnreachable")]
        # A new leader says again what is wrong, and what its predecessor had yet to say may be over by then.
        assert all(len(messages) == 1 for messages in told) or term(stage) != since, told
        assert not any("hunter2" in message or "tr0ub4dor" in message for messages in told for message in messages)


def _says(pool: JobPool, reason: str, words: str) -> None:
    pool.wait_until("Ready", "False", reason, PATIENCE)
    message = pool.message("Ready")
    assert words in message
    assert "hunter2" not in message
