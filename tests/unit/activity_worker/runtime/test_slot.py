"""The loop of a slot: polls and their retries, stop, cordon, and tasks from the operator."""

import asyncio
from typing import Any

import pytest

from activity_worker import activity
from activity_worker.activity import TaskRequest, TaskResponseToolkit
from activity_worker.contract import EventName, ExitOutput, LeasedTask
from activity_worker.errors import HandlerSignatureError, SourceError, ThrottledError
from activity_worker.runtime.lifecycle import LifecycleError, SlotStatus
from activity_worker.runtime.options import Polling, TaskOptions
from activity_worker.runtime.slot import Slot, SlotTakenError
from activity_worker.sources.memory import MemorySource
from tests.unit.activity_operator.virtual_time import elapsed, settle
from tests.unit.activity_worker.runtime.recorded_worker import POLL, RecordedWorker, double

DOWN = SourceError("InternalError", "down")


async def nap(request: TaskRequest) -> None:
    await asyncio.sleep(request.input)


def polls(recorded: RecordedWorker) -> bool:
    return recorded.worker.poller.open


def drained(recorded: RecordedWorker) -> bool:
    return recorded.worker.drained


async def test_events_of_a_start_and_an_immediate_stop() -> None:
    recorded = RecordedWorker(double)
    assert recorded.worker.status is SlotStatus.READY
    await recorded.worker.start()
    await settle()
    await recorded.worker.stop(abort_polls=True)
    assert recorded.recorder.names == [
        "worker:starting",
        "worker:running",
        "polling:starting",
        "worker:stopping",
        "worker:stopped",
    ]
    assert elapsed() == 0
    assert recorded.recorder.payload("worker:stopped") == (recorded.worker, ExitOutput(0))


async def test_stop_awaits_the_open_poll() -> None:
    recorded = RecordedWorker(double, hold_seconds=60)
    await recorded.worker.start()
    await recorded.worker.stop()
    assert elapsed() == 60
    assert recorded.recorder.names[-3:] == ["worker:stopping", "polling:success", "worker:stopped"]


async def test_stop_runs_the_task_of_the_open_poll() -> None:
    recorded = RecordedWorker(double)
    await recorded.worker.start()
    await settle()
    stop = asyncio.create_task(recorded.worker.stop())
    await settle()
    token = recorded.source.put('{"n": 4}')
    await stop
    assert recorded.source.conclusions[token].output == "8"
    assert recorded.recorder.names[-2:] == ["task:done", "worker:stopped"]
    assert recorded.recorder.names.count("polling:starting") == 1


async def test_stop_lets_the_task_finish() -> None:
    recorded = RecordedWorker(nap)
    await recorded.worker.start()
    token = recorded.source.put("500")
    await asyncio.sleep(1)
    await recorded.worker.stop()
    assert recorded.source.conclusions[token].result == "success"
    assert elapsed() == 500


async def test_stop_timeout_fails_the_task() -> None:
    recorded = RecordedWorker(nap, on_error="leave")
    await recorded.worker.start()
    token = recorded.source.put("500")
    await asyncio.sleep(1)
    await recorded.worker.stop(timeout_seconds=10)
    assert recorded.source.conclusions[token].error == "ActivityPool.WorkerStopped"
    assert elapsed() == 11
    assert recorded.worker.exit_output == ExitOutput(0)


async def test_stop_abandons_a_handler_that_does_not_end() -> None:
    released = asyncio.Event()

    async def stubborn(request: TaskRequest) -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    recorded = RecordedWorker(stubborn)
    await recorded.worker.start()
    token = recorded.source.put()
    await asyncio.sleep(1)
    await recorded.worker.stop(timeout_seconds=10)
    assert recorded.source.conclusions[token].error == "ActivityPool.WorkerStopped"
    assert recorded.worker.status is SlotStatus.STOPPED
    assert recorded.worker.exit_output is not None
    assert recorded.worker.exit_output.code == 1
    released.set()
    await settle()


async def test_stopped_worker_starts_again() -> None:
    recorded = RecordedWorker(double)
    for number in (1, 2):
        await recorded.worker.start()
        token = recorded.source.put('{"n": 1}')
        await recorded.source.concluded(token)
        await settle()
        await recorded.worker.stop(abort_polls=True)
        assert recorded.recorder.count("worker:stopped") == number
    with pytest.raises(LifecycleError):
        await asyncio.gather(recorded.worker.start(), recorded.worker.start())
    await recorded.worker.stop(abort_polls=True)


async def test_stop_before_a_start_and_a_second_stop_do_nothing() -> None:
    recorded = RecordedWorker(double)
    await recorded.worker.stop()
    await recorded.worker.start()
    await asyncio.gather(recorded.worker.stop(), recorded.worker.stop())
    await recorded.worker.stop()
    assert recorded.recorder.count("worker:stopped") == 1


def test_pauses_between_failed_polls_are_as_documented() -> None:
    polling = Polling()
    assert [polling.sleep_after(n) for n in (1, 2, 3, 4)] == pytest.approx([1, 2.2, 3.4, 4.6])
    assert Polling.forever(30).sleep_after(10_000) == 30
    assert Polling(interval_seconds=2, max_attempts=3, backoff_rate=0).sleep_after(2) == 2


@pytest.mark.parametrize(
    "wrong", [{"interval_seconds": 0}, {"max_attempts": 0}, {"backoff_rate": -1}, {"max_sleep_seconds": 0.5}]
)
def test_error_of_an_invalid_polling_setting_names_it(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Polling(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"heartbeat_seconds": 0},
        {"deadline_seconds": 0},
        {"on_error": "shrug"},
        {"cancel_grace_seconds": -1},
        {"conclude_for_seconds": -1},
    ],
)
def test_error_of_an_invalid_task_option_names_it(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        TaskOptions(**wrong)


async def test_fifth_failed_poll_in_a_row_stops_the_worker_with_code_10() -> None:
    recorded = RecordedWorker(double)
    recorded.source.refuse("lease", *[DOWN] * 5)
    await recorded.worker.start()
    output = await recorded.stopped()
    assert output.code == 10
    assert "InternalError: down" in output.error
    assert elapsed() == pytest.approx(1 + 2.2 + 3.4 + 4.6)
    assert recorded.recorder.names[-4:] == ["polling:error", "worker:error", "worker:stopping", "worker:stopped"]
    assert recorded.recorder.payload("worker:error")[1] is DOWN
    failures = [payload[1] for name, payload in recorded.recorder.events if name == "polling:error"]
    assert [(f.attempts, f.retriable, f.err) for f in failures] == [(n, n < 5, DOWN) for n in range(1, 6)]
    assert recorded.worker.status is SlotStatus.STOPPED


async def test_polling_settings_of_the_user_are_applied() -> None:
    recorded = RecordedWorker(double, polling=Polling(interval_seconds=5, max_attempts=2, backoff_rate=0))
    recorded.source.refuse("lease", DOWN, DOWN)
    await recorded.worker.start()
    assert (await recorded.stopped()).code == 10
    assert elapsed() == 5


async def test_empty_poll_resets_the_count_of_failed_polls() -> None:
    recorded = RecordedWorker(double, hold_seconds=2)
    recorded.source.refuse("lease", *[DOWN] * 4)
    await recorded.worker.start()
    await asyncio.sleep(12)
    recorded.source.refuse("lease", *[DOWN] * 4)
    await asyncio.sleep(30)
    assert recorded.worker.status is SlotStatus.RUNNING
    await recorded.worker.stop()


async def test_endless_polling_never_gives_up_and_ignores_throttling() -> None:
    recorded = RecordedWorker(double, polling=Polling.forever(max_sleep_seconds=30))
    recorded.source.refuse("lease", *[DOWN] * 100, *[ThrottledError("ThrottlingException")] * 100)
    await recorded.worker.start()
    await asyncio.sleep(5000)
    assert recorded.worker.status is SlotStatus.RUNNING
    assert recorded.recorder.payload("polling:error")[1].attempts == 100
    token = recorded.source.put('{"n": 1}')
    assert (await recorded.source.concluded(token)).result == "success"
    await recorded.worker.stop()


async def test_poll_trouble_needs_two_failures_or_five_throttlings() -> None:
    throttled = ThrottledError("ThrottlingException")
    recorded = RecordedWorker(double, polling=Polling.forever(), hold_seconds=1)
    troubles: list[Exception | None] = []
    for name in ("polling:error", "polling:success"):
        recorded.worker.events.on(name, lambda *_: troubles.append(recorded.worker.poller.trouble(elapsed())))
    recorded.source.refuse("lease", DOWN, DOWN)
    await recorded.worker.start()
    await asyncio.sleep(5)
    recorded.source.refuse("lease", *[throttled] * 5)
    await asyncio.sleep(30)
    await recorded.worker.stop()
    assert troubles[:3] == [None, DOWN, None]
    assert troubles.index(throttled) - troubles[1:].index(DOWN) > 5
    assert troubles.count(throttled) == 1
    assert troubles[-1] is None


async def test_stop_does_not_wait_for_the_next_poll_attempt() -> None:
    recorded = RecordedWorker(double, polling=Polling(interval_seconds=1000, max_sleep_seconds=1000))
    recorded.source.refuse("lease", DOWN)
    await recorded.worker.start()
    await settle()
    await recorded.worker.stop()
    assert elapsed() == 0


async def test_immediate_empty_polls_are_limited_to_one_a_second() -> None:
    recorded = RecordedWorker(double, hold_seconds=0.01)
    await recorded.worker.start()
    await asyncio.sleep(100)
    assert recorded.worker.counters.empty_polls <= 101
    await recorded.worker.stop()


async def test_unexpected_error_of_a_poll_is_retried() -> None:
    recorded = RecordedWorker(double)
    recorded.source.refuse("lease", ZeroDivisionError())  # type: ignore[arg-type]
    await recorded.worker.start()
    token = recorded.source.put('{"n": 1}')
    assert (await recorded.source.concluded(token)).result == "success"
    await recorded.worker.stop()


async def test_listener_that_raises_does_not_affect_the_worker() -> None:
    recorded = RecordedWorker(double)

    def bad(*_: object) -> None:
        raise RuntimeError("listener")

    for name in EventName:
        recorded.recorder.emitter.on(name.value, bad)
    await recorded.worker.start()
    token = recorded.source.put('{"n": 1}')
    assert (await recorded.source.concluded(token)).result == "success"
    await recorded.worker.stop()
    assert recorded.worker.exit_output == ExitOutput(0)


async def test_coroutine_listener_or_unknown_event_is_refused() -> None:
    recorded = RecordedWorker(double)

    async def coroutine(*_: object) -> None: ...

    with pytest.raises(TypeError, match="coroutine function"):
        recorded.recorder.emitter.on("task:done", coroutine)
    with pytest.raises(ValueError, match="task:finished"):
        recorded.recorder.emitter.on("task:finished", print)


async def test_removed_listener_is_not_called() -> None:
    recorded, calls = RecordedWorker(double), []
    remove = recorded.recorder.emitter.on("task:done", lambda *_: calls.append(1))
    await recorded.one()
    remove()
    remove()
    await recorded.one()
    assert calls == [1]


async def test_cordoned_slot_finishes_its_poll_and_task_and_stops_polling() -> None:
    recorded = RecordedWorker(double)
    await recorded.worker.start()
    await settle()
    recorded.worker.cordon()
    assert not drained(recorded)
    token = recorded.source.put('{"n": 1}')
    await recorded.source.concluded(token)
    await settle()
    assert drained(recorded)
    await asyncio.sleep(500)
    assert recorded.recorder.count("polling:starting") == 1
    recorded.worker.uncordon()
    await settle()
    assert recorded.recorder.count("polling:starting") == 2
    await recorded.worker.stop()


async def test_handed_over_task_runs_as_usual_without_a_poll_beside_it() -> None:
    recorded = RecordedWorker(nap)
    recorded.worker.cordon()
    await recorded.worker.start()
    await settle()
    assert recorded.worker.free
    assert recorded.worker.reserve()
    assert not recorded.worker.reserve()
    recorded.worker.uncordon()
    await settle()
    assert not polls(recorded)
    recorded.source.put("30")
    task = await recorded.source.lease("operator")
    assert task is not None
    run = asyncio.create_task(recorded.worker.run_task(task))
    await asyncio.sleep(1)
    assert (recorded.worker.busy, recorded.worker.poller.open) == (True, False)
    assert recorded.source.heartbeats == [task.token], "a granted lease gets a heartbeat at once"
    assert recorded.worker.current is not None
    held = recorded.worker.current.held(elapsed())
    assert held is not None
    assert held.age_seconds == 1
    await run
    assert recorded.recorder.tasks()[0] == "task:received"
    assert recorded.recorder.tasks()[-2:] == ["task:success", "task:done"]
    await settle()
    assert polls(recorded)
    await recorded.worker.stop()


async def test_polling_slot_accepts_no_handed_over_task() -> None:
    recorded = RecordedWorker(double)
    await recorded.worker.start()
    await settle()
    assert not recorded.worker.reserve()
    with pytest.raises(SlotTakenError):
        await recorded.worker.run_task(LeasedTask("t", "1"))
    await recorded.worker.stop()


async def test_released_reservation_lets_the_slot_poll() -> None:
    recorded = RecordedWorker(double)
    recorded.worker.cordon()
    await recorded.worker.start()
    await settle()
    assert recorded.worker.reserve()
    recorded.worker.uncordon()
    recorded.worker.release()
    await settle()
    assert polls(recorded)
    await recorded.worker.stop()


async def test_stop_waits_for_a_handed_over_task() -> None:
    recorded = RecordedWorker(nap)
    recorded.worker.cordon()
    await recorded.worker.start()
    await settle()
    token = recorded.source.put("30")
    task = await recorded.source.lease("operator")
    assert task is not None
    run = asyncio.create_task(recorded.worker.run_task(task))
    await settle()
    await recorded.worker.stop()
    await run
    assert recorded.source.conclusions[token].result == "success"


async def test_counters_of_a_slot_are_consistent() -> None:
    async def handler(request: TaskRequest) -> None:
        await asyncio.sleep(2)
        if request.input == "bad":
            raise ValueError

    recorded = RecordedWorker(handler, hold_seconds=5)
    await recorded.worker.start()
    for text in ("1", '"bad"', "2"):
        recorded.source.put(text)
    await asyncio.sleep(1)
    assert (recorded.worker.busy, recorded.worker.idle_since) == (True, None)
    await asyncio.sleep(10.5)
    counters = recorded.worker.counters.totals()
    assert (counters.received, counters.succeeded, counters.failed) == (3, 2, 1)
    assert (counters.empty_polls, counters.busy_seconds) == (1, 6)
    assert recorded.worker.idle_since == 6
    await recorded.worker.stop()


async def test_runner_that_cannot_start_ends_the_worker_with_its_error() -> None:
    class Broken:
        async def start(self) -> None:
            raise ImportError("no module named handler")

        async def run(self, request: TaskRequest, respond: TaskResponseToolkit) -> None: ...

        async def stop(self) -> None: ...

    errors: list[str] = []
    worker = Slot(MemorySource(), runner=Broken())
    for name in ("worker:starting", "worker:running", "worker:error", "worker:stopping", "worker:stopped"):
        worker.events.on(name, lambda *_, name=name: errors.append(name))
    with pytest.raises(ImportError):
        await worker.start()
    assert errors == ["worker:starting", "worker:error", "worker:stopping", "worker:stopped"]
    assert worker.exit_output == ExitOutput(1, "no module named handler")


@pytest.mark.parametrize(
    "handler", [lambda: 1, lambda a, b, c: 1, lambda a, *, key: 1, 7], ids=["none", "three", "keyword", "no function"]
)
def test_handler_that_cannot_be_called_is_refused_at_once(handler: Any) -> None:
    with pytest.raises(HandlerSignatureError):
        Slot(MemorySource(), handler)


async def test_run_once_returns_whether_it_ran_a_task() -> None:
    recorded = RecordedWorker(double, hold_seconds=1)
    assert not await recorded.worker.run_once()
    assert recorded.recorder.names == POLL
    recorded.source.refuse("lease", DOWN)
    with pytest.raises(SourceError):
        await recorded.worker.run_once()
    await recorded.worker.start()
    with pytest.raises(LifecycleError):
        await recorded.worker.run_once()
    await recorded.worker.stop()


async def test_two_stops_that_abort_the_same_poll_end_the_slot_well() -> None:
    recorded = RecordedWorker(double)
    await recorded.worker.start()
    await settle()
    await asyncio.gather(recorded.worker.stop(abort_polls=True), recorded.worker.stop(abort_polls=True))
    assert recorded.worker.exit_output == ExitOutput(0)
    assert recorded.recorder.count("worker:error") == 0


async def test_handler_sees_that_its_slot_takes_no_further_task() -> None:
    seen: list[bool] = []

    async def handler(request: TaskRequest) -> None:
        for _ in range(4):
            seen.append(activity.draining())
            await asyncio.sleep(1)

    recorded = RecordedWorker(handler)
    await recorded.worker.start()
    recorded.source.put()
    await asyncio.sleep(0.5)
    recorded.worker.cordon()
    await asyncio.sleep(1)
    recorded.worker.uncordon()
    await asyncio.sleep(1)
    await recorded.worker.stop(abort_polls=True)
    assert seen == [False, True, False, True]


async def test_task_of_a_draining_slot_knows_it_from_the_start() -> None:
    seen: list[bool] = []

    async def handler(request: TaskRequest) -> None:
        seen.append(activity.draining())

    recorded = RecordedWorker(handler)
    await recorded.worker.start()
    await settle()
    recorded.worker.cordon()
    recorded.source.put()
    await settle()
    assert seen == [True]
    await recorded.worker.stop(abort_polls=True)


def test_jitter_takes_a_random_share_off_a_pause() -> None:
    assert Polling.forever(30).sleep_after(10_000, spread=1.0) == 15
    assert Polling().sleep_after(2, spread=1.0) == Polling().sleep_after(2)
    with pytest.raises(ValueError, match=r"polling.jitter: 2: must be between 0 and 1"):
        Polling(jitter=2)
