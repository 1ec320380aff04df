"""Pools and the consumer: the desired number of slots is kept after failures."""

import asyncio
import itertools
import os
import re
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from activity_worker.activity import Activities, TaskRequest, TaskResponseToolkit
from activity_worker.contract import ExitOutput
from activity_worker.errors import DeniedError, HandlerSignatureError, SourceError
from activity_worker.runtime.consumer import ActivityConsumer
from activity_worker.runtime.lifecycle import SlotStatus
from activity_worker.runtime.options import Polling
from activity_worker.runtime.slot_pool import SlotPool
from activity_worker.sources.memory import MemorySource
from tests.unit.activity_operator.virtual_time import elapsed, settle
from tests.unit.activity_worker.runtime.recorded_worker import Recorder, double


async def nap(request: TaskRequest) -> None:
    await asyncio.sleep(request.input)


class Pool:
    """A pool over a source in memory, with recorded events."""

    def __init__(self, handler: Any = nap, **settings: Any) -> None:
        self.source = MemorySource("arn:activity")
        self.recorder = Recorder()
        self.manager = SlotPool(self.source, handler, events=self.recorder.emitter, **settings)

    def now(self) -> Any:
        return self.manager.snapshot(elapsed())


async def test_pool_starts_and_stops_its_workers_on_one_emitter() -> None:
    pool = Pool(slots=3, name_prefix="host")
    await pool.manager.start()
    assert pool.manager.status is SlotStatus.RUNNING
    assert pool.manager.current_capacity == 3
    names = {worker.worker_name for worker in pool.manager.members}
    assert len(names) == 3
    assert all(re.fullmatch(r"host:[a-z]{5}", name) for name in names)
    await pool.manager.stop()
    assert pool.recorder.count("worker:stopped") == 3
    assert pool.manager.exit_output == ExitOutput(0)
    assert pool.manager.members == ()


async def test_pool_grows_and_shrinks_while_running() -> None:
    pool = Pool(slots=1)
    await pool.manager.start()
    pool.manager.desired_capacity = 4
    await pool.manager.settled()
    assert pool.now().open_polls == 4
    pool.manager.desired_capacity = 0
    await pool.manager.settled()
    assert (pool.manager.current_capacity, pool.manager.members) == (0, ())
    pool.manager.desired_capacity = 0
    pool.manager.desired_capacity = 2
    await pool.manager.settled()
    assert pool.manager.current_capacity == 2
    await pool.manager.stop()


async def test_slot_that_was_added_just_before_the_stop_does_not_start() -> None:
    """It polled on in a stopped pool."""
    pool = Pool(slots=1)
    await pool.manager.start()
    pool.manager.desired_capacity = 2
    await pool.manager.stop(abort_polls=True)
    await asyncio.sleep(1)
    assert pool.source.open_polls == 0
    assert pool.recorder.count("worker:starting") == 1


async def test_shrinking_pool_stops_idle_slots_first_and_lets_tasks_finish() -> None:
    pool = Pool(slots=3)
    await pool.manager.start()
    await settle()
    tokens = [pool.source.put("500"), pool.source.put("600")]
    await asyncio.sleep(1)
    pool.manager.desired_capacity = 2
    await asyncio.sleep(100)
    assert [worker.busy for worker in pool.manager.members] == [True, True]
    pool.manager.desired_capacity = 1
    assert pool.manager.current_capacity == 1
    await pool.manager.settled()
    assert len(pool.manager.members) == 1
    for token in tokens:
        assert (await pool.source.concluded(token)).result == "success"
    await pool.manager.stop()


@pytest.mark.parametrize("count", [-1, -5])
def test_capacity_below_zero_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"capacity: {count}"):
        Pool(slots=count)
    with pytest.raises(ValueError, match="capacity"):
        Pool().manager.desired_capacity = count


def test_handler_that_cannot_be_called_is_refused_at_once() -> None:
    with pytest.raises(HandlerSignatureError):
        Pool(lambda: 1)


async def test_crashed_worker_is_replaced_after_the_restart_interval() -> None:
    pool = Pool(slots=2, polling=Polling(max_attempts=1), restart_interval_seconds=2)
    pool.source.refuse("lease", SourceError("InternalError"))
    await pool.manager.start()
    await asyncio.sleep(1.9)
    assert pool.manager.current_capacity == 1
    await asyncio.sleep(0.2)
    assert pool.manager.current_capacity == 2
    assert pool.recorder.count("worker:error") == 1
    await pool.manager.stop()


async def test_stopped_pool_restarts_no_slot_until_its_next_start() -> None:
    pool = Pool(slots=1, polling=Polling(max_attempts=1))
    pool.source.refuse("lease", SourceError("InternalError"))
    await pool.manager.start()
    await settle()
    await pool.manager.stop()
    await asyncio.sleep(10)
    assert pool.manager.members == ()
    await pool.manager.start()
    assert pool.manager.current_capacity == 1
    await pool.manager.stop()


class Flaky:
    """A runner whose first `broken` starts fail."""

    starts = itertools.count()

    def __init__(self, broken: int) -> None:
        self.broken = broken

    async def start(self) -> None:
        if next(self.starts) < self.broken:
            raise ImportError("no handler")

    async def run(self, request: TaskRequest, respond: TaskResponseToolkit) -> None:
        await respond.success()

    async def stop(self) -> None: ...


async def test_pool_without_any_started_slot_stops_with_the_error() -> None:
    manager = SlotPool(MemorySource(), runner_factory=lambda: Flaky(1000), slots=2)
    with pytest.raises(ImportError, match="no handler"):
        await manager.start()
    assert manager.status is SlotStatus.STOPPED
    assert manager.exit_output == ExitOutput(1, "no handler")


async def test_cordoned_pool_is_drained_and_its_slots_can_be_reserved() -> None:
    pool = Pool(double, slots=2)
    pool.manager.cordon()
    await pool.manager.start()
    await settle()
    assert pool.manager.drained
    assert pool.now().free_slots == 2
    worker = pool.manager.reserve()
    assert worker is not None
    assert pool.now().free_slots == 1
    pool.source.put('{"n": 1}')
    task = await pool.source.lease("operator")
    assert task is not None
    await worker.run_task(task)
    assert pool.now().counters.succeeded == 1
    assert pool.recorder.count("polling:starting") == 0
    pool.manager.uncordon()
    await settle()
    assert pool.now().open_polls == 2
    assert pool.manager.reserve() is None
    await pool.manager.stop()


async def test_snapshot_counts_busy_slots_polls_and_leases() -> None:
    pool = Pool(slots=2)
    await pool.manager.start()
    await settle()
    pool.source.put("30")
    await asyncio.sleep(10)
    snapshot = pool.now()
    assert (snapshot.slots, snapshot.busy, snapshot.open_polls, snapshot.idle_seconds) == (2, 1, 1, 10)
    assert [lease.age_seconds for lease in snapshot.leases] == [10]
    assert snapshot.counters.busy_seconds == 10
    await asyncio.sleep(25)
    snapshot = pool.now()
    assert (snapshot.busy, snapshot.idle_seconds, snapshot.leases) == (0, 5, ())
    await pool.manager.stop()


async def test_stop_timeout_fails_the_tasks_of_a_pool() -> None:
    pool = Pool(slots=2)
    await pool.manager.start()
    tokens = [pool.source.put("5000"), pool.source.put("5000")]
    await asyncio.sleep(1)
    await pool.manager.stop(timeout_seconds=10)
    assert {pool.source.conclusions[token].error for token in tokens} == {"ActivityPool.WorkerStopped"}
    assert elapsed() == 11


async def test_consumer_runs_pools_of_several_activities_until_a_signal() -> None:
    one, two = Pool(), Pool(slots=2)
    consumer = ActivityConsumer([one.manager, two.manager])
    run = asyncio.create_task(consumer.run())
    await settle()
    assert consumer.status == "running"
    tokens = [one.source.put("5"), two.source.put("5")]
    await asyncio.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0)
    assert await run == ExitOutput(0)
    assert one.source.conclusions[tokens[0]].result == two.source.conclusions[tokens[1]].result == "success"
    assert (one.source.closed, two.source.closed) == (True, True)
    assert str(consumer.status) == "stopped"


async def test_signal_ends_a_consumer_whose_resources_never_open() -> None:
    """It was noticed after the start only, and took the place of Python's own way to end a program."""
    app = Activities()

    @app.resource
    async def store() -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield

    @app.activity
    async def work(store: None) -> None: ...

    pool = Pool(app)
    run = asyncio.create_task(ActivityConsumer([pool.manager]).run())
    await settle()
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(1.0):
        assert await run == ExitOutput(0)
    assert pool.source.closed


async def test_second_stop_of_a_consumer_adds_its_harder_terms() -> None:
    pool = Pool()
    consumer = ActivityConsumer([pool.manager])
    await consumer.start()
    token = pool.source.put("600")
    await asyncio.sleep(1)
    first = asyncio.create_task(consumer.stop())
    await settle()

    await consumer.stop(timeout_seconds=10)

    assert str(consumer.status) == "stopped"
    assert elapsed() == 11
    assert pool.source.conclusions[token].error == "ActivityPool.WorkerStopped"
    await first


async def test_cancelled_stop_of_a_consumer_goes_on_for_the_next_call() -> None:
    pool = Pool()
    consumer = ActivityConsumer([pool.manager])
    await consumer.start()
    token = pool.source.put("20")
    await asyncio.sleep(1)
    first = asyncio.create_task(consumer.stop())
    await settle()
    first.cancel()

    await consumer.stop()

    assert (str(consumer.status), pool.source.closed) == ("stopped", True)
    assert pool.source.conclusions[token].result == "success"


async def test_consumer_stops_all_pools_if_one_cannot_start() -> None:
    good = Pool()
    bad = SlotPool(MemorySource(), runner_factory=lambda: Flaky(1000))
    consumer = ActivityConsumer([good.manager, bad], close_sources=False)
    with pytest.raises(ImportError):
        await consumer.start()
    assert good.manager.status is SlotStatus.STOPPED
    assert consumer.exit_output == ExitOutput(1, "no handler")
    assert not good.source.closed
    with pytest.raises(ValueError, match="pools"):
        ActivityConsumer([])


async def test_pool_has_poll_trouble_when_no_free_slot_can_poll() -> None:
    pool = Pool(slots=2, polling=Polling.forever())
    denied = DeniedError("AccessDeniedException")
    pool.source.put("100")
    await pool.manager.start()
    await settle()
    assert (pool.now().busy, pool.now().poll_trouble) == (1, None)
    pool.source.refuse("lease", denied, denied)
    pool.source.put("0")
    await asyncio.sleep(5)
    assert pool.now().poll_trouble is denied
    await asyncio.sleep(10)
    assert pool.now().poll_trouble is None
    await pool.manager.stop()
