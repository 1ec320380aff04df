"""Runners on a real store: order, lease, takeover and stop; cancel, pause and retry."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from activity_worker.steps.model.definition_parser import DefinitionError
from activity_worker.steps.model.errors import FinalError
from activity_worker.steps.model.task import Task, step
from activity_worker.steps.model.transitions import CannotRetryError, InstanceCompleteError
from activity_worker.steps.runner import runner as runner_module
from activity_worker.steps.runner.invoke import current
from activity_worker.steps.runner.runner import Runner, RunnerOptions
from activity_worker.steps.runner.tasks import (
    Created,
    InstanceConflictError,
    Tasks,
    UnknownTaskError,
    cancel,
    pause,
    resume,
    retry,
)
from activity_worker.steps.store.notifier import Notifier, announcements
from activity_worker.steps.store.rows import StoredInstance
from activity_worker.steps.store.task_store import TaskStore, Transition, UnknownInstanceError
from tests.clock import Clock


async def start(store: TaskStore, clock: Callable[[], float], *tasks: Task, **modules: Any) -> tuple[Tasks, Runner]:
    app = Tasks(tasks, modules=modules, clock=clock)
    await app.sync(store)
    return app, app.runner(store, RunnerOptions("r1", poll_seconds=0.2, versions_seconds=0.0))


async def test_sync_and_async_methods_of_the_task_and_of_modules(store: TaskStore, clock: Clock) -> None:
    task = Task("order")
    threads = []

    @task.step()
    def receive(arguments: dict[str, Any]) -> dict[str, Any]:
        threads.append(threading.current_thread())
        arguments["lines"].append("changed by the method only")
        return {"received": arguments["n"]}

    @task.step(output={"id": "mail.id"})
    async def notify(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"id": arguments["received"] + 1, "noise": 1}

    class Email:
        def send(self, arguments: dict[str, Any]) -> None:
            sent.append(arguments)

    sent: list[dict[str, Any]] = []
    task._steps.append("module.email.send")
    app, runner = await start(store, clock, task, email=Email())
    name = await app.new(store, "order", {"n": 1, "lines": []}, session={"user": "u"})

    assert await runner.run_due() == 1
    done = (await store.get(name)).instance
    assert (done.complete, done.success) == (True, True)
    expected = {"n": 1, "lines": [], "received": 1, "mail": {"id": 2}, "session": {"user": "u"}}
    assert done.data == expected
    assert sent == [expected]
    assert threads != [threading.main_thread()]


async def test_retry_waits_for_its_time_while_others_run(store: TaskStore, clock: Clock) -> None:
    task = Task("t", [step("flaky", retry={"delays": [30]})])
    outcomes = [RuntimeError("first"), None]

    @task.method
    def flaky(arguments: dict[str, Any]) -> None:
        if arguments.get("flaky") and (error := outcomes.pop(0)) is not None:
            raise error

    app, runner = await start(store, clock, task)
    name = await app.new(store, "t", {"flaky": True})
    await app.new(store, "t")

    assert await runner.run_due() == 2
    waiting = (await store.get(name)).instance
    assert (waiting.next_run_time, waiting.status.errors["method"].message) == (1030.0, "first")
    assert "RuntimeError: first" in waiting.status.errors["method"].stack
    clock.now = 1030.0
    assert await runner.run_due() == 1
    assert (await store.get(name)).instance.success


async def test_instance_runs_as_far_as_it_can_before_the_next_is_taken(store: TaskStore, clock: Clock) -> None:
    calls: list[tuple[str, int]] = []
    methods = {name: lambda it, name=name: calls.append((name, it["n"])) for name in "abc"}
    app, runner = await start(store, clock, Task("t", list("abc"), methods=methods))
    for n in (1, 2):
        await app.new(store, "t", {"n": n})
        clock.now += 1.0
    await runner.run_due()

    assert calls == [(name, n) for n in (1, 2) for name in "abc"]


async def test_step_that_creates_another_task_creates_it_once(store: TaskStore, clock: Clock) -> None:
    child = Task("child", ["work"], methods={"work": lambda arguments: {"worked": arguments["n"]}})
    parent = Task("parent", [step("task.child.new", output={"id": "child"}, input={"n": "n"})])
    app, runner = await start(store, clock, child, parent)
    name = await app.new(store, "parent", {"n": 7})
    await runner.run_due()

    made = (await store.get(name)).instance.data["child"]
    assert (await store.get(made)).instance.data == {"n": 7, "worked": 7}
    assert len(await store.listed(["child"])) == 1


async def test_step_may_be_a_method_of_another_task_and_get_the_session(store: TaskStore, clock: Clock) -> None:
    sessions: list[Any] = []
    methods = {"look": lambda arguments: sessions.append((current().task_name, arguments["session"]))}
    child = Task("child", ["look"], methods=methods)
    parent = Task("parent", [step("task.child.look", input={"n": "n"}), step("task.child.new", input={"n": "n"})])
    app, runner = await start(store, clock, child, parent)
    await app.new(store, "parent", {"n": 7}, session={"user": "u"})
    await runner.run_due()

    assert sessions == [("parent", {"user": "u"}), ("child", {"user": "u"})]


async def test_scheduled_instance_waits(store: TaskStore, clock: Clock) -> None:
    app, runner = await start(store, clock, Task("t", ["m"], methods={"m": lambda _: None}))
    name = await app.new(store, "t", at=2000.0)

    assert await runner.run_due() == 0
    clock.now = 2000.0
    assert await runner.run_due() == 1
    assert (await store.get(name)).instance.complete


async def test_version_with_unknown_methods_is_left_to_other_runners(store: TaskStore, clock: Clock) -> None:
    newer = Tasks([Task("t", ["b"], methods={"b": lambda _: None})], clock=clock)
    name = await newer.new(store, "t")
    _, old = await start(store, clock, Task("t", ["a"], methods={"a": lambda _: None}))

    assert await old.run_due() == 0
    assert await newer.runner(store, RunnerOptions("r2")).run_due() == 1
    assert (await store.get(name)).instance.success


async def test_method_beyond_its_time_limit_fails(store: TaskStore, clock: Clock) -> None:
    task = Task("t", [step("slow", timeout=0.01)])

    @task.method
    async def slow(_: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    app, runner = await start(store, clock, task)
    name = await app.new(store, "t")
    await runner.run_due()

    assert (await store.get(name)).instance.status.failures[0].error.message == "slow took longer than 0.01 s"


async def test_output_that_is_not_json_fails_with_the_reason(store: TaskStore, clock: Clock) -> None:
    app, runner = await start(store, clock, Task("t", ["m"], methods={"m": lambda _: {"x": object()}}))
    name = await app.new(store, "t")
    await runner.run_due()

    error = (await store.get(name)).instance.status.failures[0].error
    assert (error.code, error.message[:24]) == ("ReturnNotJson", "what m returned cannot b")


async def test_call_lost_with_its_runner_is_repeated_by_the_next(store: TaskStore, clock: Clock) -> None:
    task, begun, calls = Task("t", ["hang"]), asyncio.Event(), []

    @task.method
    async def hang(arguments: dict[str, Any]) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            begun.set()
            await asyncio.Event().wait()

    app, runner = await start(store, clock, task)
    name = await app.new(store, "t")
    running = asyncio.create_task(runner.run_due())
    await begun.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    other = app.runner(store, RunnerOptions("r2"))
    assert await other.run_due() == 0
    clock.now += 60.0
    assert await other.run_due() == 1
    assert (await store.get(name)).instance.success
    assert len(calls) == 2


async def test_runner_whose_lease_was_taken_over_abandons_its_call(store: TaskStore, clock: Clock) -> None:
    task, begun, given_up = Task("t", ["hang"]), asyncio.Event(), asyncio.Event()
    calls: list[int] = []

    @task.method
    async def hang(_: dict[str, Any]) -> None:
        calls.append(1)
        if len(calls) == 1:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                given_up.set()
                raise

    app = Tasks([task], clock=clock)
    await app.sync(store)
    # Its clock stands still, so its renewed lease has expired for the other runner.
    slow = Tasks([task], clock=Clock(clock.now)).runner(store, RunnerOptions("r1", lease_seconds=0.3))
    name = await app.new(store, "t")
    running = asyncio.create_task(slow.run_one())
    await begun.wait()
    clock.now += 60.0
    assert await app.runner(store, RunnerOptions("r2")).run_due() == 1

    await given_up.wait()
    assert await running is True
    assert (await store.get(name)).instance.success


async def test_new_instance_starts_at_once_and_stop_waits_for_the_call(store: TaskStore) -> None:
    task, inside, go_on = Task("t", ["first", "second"]), asyncio.Event(), asyncio.Event()

    @task.method
    async def first(_: dict[str, Any]) -> None:
        inside.set()
        await go_on.wait()

    @task.method
    async def second(_: dict[str, Any]) -> None:
        raise AssertionError("it was stopped before")

    app = Tasks([task])
    await app.sync(store)
    runner = app.runner(store, RunnerOptions("r1", slots=3, poll_seconds=0.2))
    running = asyncio.create_task(runner.run())
    name = await app.new(store, "t")
    await inside.wait()
    runner.stop()
    go_on.set()
    await running

    left = (await store.get(name)).instance
    assert (left.status.step_num, left.status.running, left.complete) == (1, False, False)


async def test_cancel_pause_and_retry_by_a_person(store: TaskStore, clock: Clock) -> None:
    undone: list[str] = []
    task = Task("t", [step("pay", reverse="refund"), step("ship", retry=True)])
    broken = [True]

    @task.method
    def pay(_: dict[str, Any]) -> None: ...

    @task.method
    def refund(arguments: dict[str, Any]) -> None:
        undone.append(arguments["n"])

    @task.method
    def ship(arguments: dict[str, Any]) -> None:
        if arguments["n"] == "waits":
            raise RuntimeError
        if broken[0]:
            raise FinalError("OutOfStock", "none left")

    app, runner = await start(store, clock, task)
    waits, fails = await app.new(store, "t", {"n": "waits"}), await app.new(store, "t", {"n": "fails"})
    await runner.run_due()
    with pytest.raises(CannotRetryError, match="is not complete: only a failed one can be retried"):
        await retry(store, waits, now=clock.now)
    await cancel(store, waits, now=clock.now)
    await runner.run_due()
    assert undone == ["fails", "waits"]

    broken[0] = False
    await retry(store, fails, now=clock.now)
    await pause(store, fails, now=clock.now)
    assert await runner.run_due() == 0
    await resume(store, fails, now=clock.now)
    await runner.run_due()
    assert (await store.get(fails)).instance.success
    with pytest.raises(CannotRetryError, match="succeeded"):
        await retry(store, fails, now=clock.now)


async def test_complete_instance_is_not_canceled_paused_or_resumed(store: TaskStore, clock: Clock) -> None:
    app, runner = await start(store, clock, Task("t", ["m"], methods={"m": lambda _: None}))
    name = await app.new(store, "t")
    await runner.run_due()
    revision = (await store.get(name)).revision
    for act, word in ((cancel, "cancel"), (pause, "pause"), (resume, "resume")):
        with pytest.raises(InstanceCompleteError, match=f"succeeded already: there is nothing left to {word}$"):
            await act(store, name)
        with pytest.raises(UnknownInstanceError):
            await act(store, "gone")

    assert (await store.get(name)).revision == revision


async def test_id_of_another_instance_is_refused(store: TaskStore, clock: Clock) -> None:
    methods = {"m": lambda _: {"n": 0}}
    one, other = Task("one", ["m"], methods=methods, data={"x": 1}), Task("other", ["m"], methods=methods)
    app, runner = await start(store, clock, one, other)
    made = [await app.create(store, "one", {"n": 7}, session={"u": 1}, instance_id="mine") for _ in range(2)]
    assert made == [Created("mine", is_new=True), Created("mine", is_new=False)]
    await runner.run_due()
    assert await app.new(store, "one", {"n": 7}, session={"u": 1}, instance_id="mine") == "mine"

    with pytest.raises(InstanceConflictError, match="instance mine belongs to task 'one', not 'other'"):
        await app.new(store, "other", {"n": 7}, session={"u": 1}, instance_id="mine")
    for arguments, session in (({"n": 8}, {"u": 1}), ({"n": 7}, None)):
        with pytest.raises(InstanceConflictError, match="instance mine was created with other arguments or another"):
            await app.new(store, "one", arguments, session=session, instance_id="mine")
    # Another version has other default data; the arguments are the same.
    newer = Tasks([Task("one", ["m"], methods=methods, data={"x": 2})], clock=clock)
    assert await newer.new(store, "one", {"n": 7}, session={"u": 1}, instance_id="mine") == "mine"


async def test_instances_that_are_left_to_others_are_logged_once(
    store: TaskStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    newer = Tasks([Task("t", ["b"], methods={"b": lambda _: None})], clock=clock)
    for _ in range(2):
        await newer.new(store, "t")
    _, old = await start(store, clock, Task("t", ["a"], methods={"a": lambda _: None}))
    for _ in range(3):
        assert await old.run_due() == 0

    (record,) = [one for one in caplog.records if one.getMessage() == "instances are left to other runners"]
    assert vars(record)["facts"] == {
        "version": newer.methods.tasks["t"].id,
        "instances": 2,
        "missing": "task 't', step 0, method: there is no method 'b': "
        "give it to the task as a method, or name it module.NAME.METHOD",
    }


def test_missing_method_is_reported_at_once() -> None:
    with pytest.raises(DefinitionError, match=r"task 't', step 1, reverse: there is no method 'module.mail.x': no mod"):
        Tasks([Task("t", ["a", step("a", reverse="module.mail.x")], methods={"a": print})])
    with pytest.raises(DefinitionError, match=r"there is no method 'task.gone.new': no task 'gone' is registered"):
        Tasks([Task("t", ["task.gone.new"])])


async def test_unknown_task_is_reported(store: TaskStore) -> None:
    with pytest.raises(UnknownTaskError, match="there is no task 'b'; there are a"):
        await Tasks([Task("a", ["m"], methods={"m": print})]).new(store, "b")


async def test_short_failure_of_the_store_loses_no_outcome(store: TaskStore, clock: Clock, monkeypatch: Any) -> None:
    monkeypatch.setattr(runner_module, "AGAIN_SECONDS", 0.01)
    calls: list[int] = []
    app, runner = await start(store, clock, Task("t", ["m", "m"], methods={"m": lambda _: calls.append(1)}))
    saved, record, failures = [False, True], store.record, 0

    async def fails(held: StoredInstance, now: float, turn: Transition) -> StoredInstance:
        nonlocal failures
        if saved:
            if saved.pop():
                await record(held, now, turn)
            failures += 1
            raise OSError("the connection went away")
        return await record(held, now, turn)

    monkeypatch.setattr(store, "record", fails)
    name = await app.new(store, "t")
    await runner.run_due()

    assert (await store.get(name)).instance.success
    assert (len(calls), failures) == (2, 2)


async def test_each_slot_of_a_runner_gets_an_announced_instance(store: TaskStore) -> None:
    task, both, met = Task("t", ["meet"]), asyncio.Barrier(2), asyncio.Queue[int]()

    @task.method
    async def meet(_: dict[str, Any]) -> None:
        met.put_nowait(await both.wait())

    app = Tasks([task])
    await app.sync(store)
    runner = app.runner(store, RunnerOptions("r1", slots=2, poll_seconds=60.0))
    running = asyncio.create_task(runner.run())
    for _ in range(3):
        await asyncio.gather(app.new(store, "t"), app.new(store, "t"))
        runner.wake()
        assert {await met.get(), await met.get()} == {0, 1}
    runner.stop()
    await running


async def test_method_knows_the_key_of_its_effect(store: TaskStore, clock: Clock) -> None:
    keys: list[str] = []
    task = Task("t", [step("pay", retry={"delays": [0]}, check="paid", reverse="refund"), "ship"])

    @task.method
    def pay(_: dict[str, Any]) -> None:
        keys.append(current().key)
        if len(keys) == 1:
            raise RuntimeError

    @task.method
    async def paid(_: dict[str, Any]) -> None:
        keys.append(current().key)

    @task.method
    def refund(_: dict[str, Any]) -> None:
        keys.append(current().key)

    @task.method
    def ship(_: dict[str, Any]) -> None:
        raise RuntimeError

    app, runner = await start(store, clock, task)
    name = await app.new(store, "t")
    await runner.run_due()
    assert keys == [f"{name}/0/0/method"] * 3 + [f"{name}/0/0/reverse"]

    await retry(store, name, now=clock.now)
    await runner.run_due()
    assert keys[4:] == [f"{name}/1/0/method", f"{name}/1/0/reverse"]


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_announcements_work_again_after_a_lost_connection(store: TaskStore) -> None:
    notifier = Notifier()
    async with announcements(store.engine, notifier):
        heard = notifier.notifications
        ask = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        async with store.engine.begin() as connection:
            await connection.execute(text(ask))
        await notifier.wait(heard, 30)
        assert notifier.notifications > heard


async def test_one_slot_of_a_runner_polls_for_all(store: TaskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Tasks([Task("t", ["m"], methods={"m": lambda _: ran.set()})])
    await app.sync(store)
    ran, looked, claims, claim = asyncio.Event(), asyncio.Event(), list[int](), store.claim

    async def counted(*arguments: Any, **more: Any) -> Any:
        claims.append(1)
        if len(claims) == 8:
            looked.set()
        return await claim(*arguments, **more)

    monkeypatch.setattr(store, "claim", counted)
    runner = app.runner(store, RunnerOptions("r1", slots=8, poll_seconds=60.0))
    running = asyncio.create_task(runner.run())
    await looked.wait()
    await app.new(store, "t")
    runner.wake()
    await ran.wait()
    runner.stop()
    await running

    assert len(claims) <= 8 + 4  # the slot that took it, the next one, and the two that were stopped


async def test_instance_taken_during_a_stop_is_given_back_at_once(
    store: TaskStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    app, runner = await start(store, clock, Task("t", ["m"], methods={"m": lambda _: calls.append(current().runner)}))
    name, claim = await app.new(store, "t"), store.claim

    async def stopped_meanwhile(*arguments: Any, **more: Any) -> Any:
        runner.stop()
        return await claim(*arguments, **more)

    monkeypatch.setattr(store, "claim", stopped_meanwhile)
    await runner.run_due()
    assert calls == []
    monkeypatch.setattr(store, "claim", claim)
    assert await app.runner(store, RunnerOptions("r2")).run_due() == 1
    there = await store.get(name)
    assert (calls, there.instance.success, there.instance.status.tries) == (["r2"], True, {})
