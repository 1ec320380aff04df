"""The worker map: who may get how many tasks, in virtual time."""

from activity_worker.taskbroker.broker.worker_map import (
    ASIDE_SECONDS,
    CHECK_SECONDS,
    FIRST_BUSY_SECONDS,
    MAX_ERRORS,
    REGISTRATION_SECONDS,
    PushWorker,
    Registration,
    WorkerMap,
)
from activity_worker.taskbroker.store.statements import TaskFilter

ANY, MAIL = TaskFilter(), TaskFilter(namespace="mail")


def register(workers: WorkerMap, address: str = "a:1", *, slots: int | None = 2, busy: int = 0) -> PushWorker:
    """Register a worker whose health check has passed."""
    assert workers.register(Registration(address, MAIL, slots, busy), 0.0)
    worker = workers.get(address)
    assert worker is not None
    worker.healthy = True
    return worker


def places(workers: WorkerMap, now: float = 0.0) -> list[str]:
    return [worker.address for worker in workers.with_room(now).get(MAIL, [])]


def test_tasks_spread_over_workers_with_free_slots() -> None:
    workers = WorkerMap()
    register(workers, "a:1", slots=3)
    register(workers, "b:1", slots=1)
    assert places(workers) == ["a:1", "b:1", "a:1", "a:1"]
    assert workers.with_room(0.0).keys() == {MAIL}


def test_worker_without_a_passed_health_check_gets_nothing() -> None:
    workers = WorkerMap()
    register(workers).healthy = False
    assert places(workers) == []


def test_slot_is_free_again_after_the_report_or_the_deadline() -> None:
    workers = WorkerMap()
    worker = register(workers)
    for task_id in ("one", "two"):
        workers.accepted(worker, task_id, until=10.0)
    assert places(workers) == []
    assert workers.reported("one")
    assert not workers.reported("one")
    assert not workers.reported("unknown")
    assert places(workers) == ["a:1"]
    assert places(workers, 10.0) == ["a:1", "a:1"]


def test_registration_says_that_tasks_ended_without_a_report() -> None:
    workers = WorkerMap()
    worker = register(workers)
    for task_id in ("one", "two"):
        workers.accepted(worker, task_id, until=1000.0)
    register(workers, busy=1)
    assert places(workers) == ["a:1"]


def test_busy_worker_waits_longer_each_time() -> None:
    workers = WorkerMap()
    worker = register(workers)
    worker.refused_as_busy(0.0)
    assert places(workers, FIRST_BUSY_SECONDS / 2) == []
    assert places(workers, FIRST_BUSY_SECONDS) == ["a:1", "a:1"]
    worker.refused_as_busy(1.0)
    assert places(workers, 1.0 + FIRST_BUSY_SECONDS) == []
    assert places(workers, 1.0 + 2 * FIRST_BUSY_SECONDS) == ["a:1", "a:1"]


def test_errors_set_a_worker_aside() -> None:
    worker = register(WorkerMap())
    for number in range(1, MAX_ERRORS + 1):
        worker.failed(5.0)
        assert not worker.healthy
        assert worker.check_at == 5.0 + (CHECK_SECONDS if number < MAX_ERRORS else ASIDE_SECONDS)


def test_worker_of_unknown_size_gets_one_push_at_a_time() -> None:
    workers = WorkerMap()
    worker = register(workers, slots=None)
    workers.accepted(worker, "one", until=1000.0)
    assert places(workers) == ["a:1"]
    worker.pushing = 1
    assert places(workers) == []


def test_worker_leaves_at_once_and_when_it_falls_silent() -> None:
    workers = WorkerMap()
    leaving, silent = register(workers, "a:1"), register(workers, "b:1")
    register(workers, "a:1", slots=0)
    silent.pushing = 1
    assert workers.remove_expired(0.0) == [leaving]
    assert places(workers, REGISTRATION_SECONDS) == []
    assert workers.remove_expired(REGISTRATION_SECONDS) == []
    silent.pushing = 0
    assert workers.remove_expired(REGISTRATION_SECONDS) == [silent]
    assert workers.workers() == []
