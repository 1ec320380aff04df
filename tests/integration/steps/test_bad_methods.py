"""Methods that return what cannot be stored, or raise what is no ordinary error: only their own call fails."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import event, text

from activity_worker.steps import RunnerOptions, Task, Tasks, TaskStore, step
from activity_worker.steps.model.storable import MAX_DEPTH
from tests.clock import Clock


def nested(levels: int) -> dict[str, Any]:
    """Return a map of `levels` levels."""
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"k": value}
    return value


async def refuse_large_data(store: TaskStore) -> None:
    """Have the database refuse data of more than 100,000 bytes, as it refuses 256 MB."""
    if store.engine.dialect.name == "sqlite":

        def limit(connection: Any, *_: Any) -> None:
            getattr(connection, "driver_connection", connection).setlimit(0, 100_000)  # SQLITE_LIMIT_LENGTH

        event.listen(store._transactions._engine, "connect", limit)  # type: ignore[attr-defined]
        store._transactions._engine.dispose()  # type: ignore[attr-defined]
        return
    async with store.engine.begin() as connection:
        await connection.execute(
            text(
                """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF length(NEW.data::text) > 100000 THEN
                  RAISE EXCEPTION 'string too long to represent as jsonb string' USING ERRCODE = '54000';
                END IF; RETURN NEW; END $$"""
            )
        )
        await connection.execute(
            text(
                "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON activitypool_instances"
                " FOR EACH ROW EXECUTE FUNCTION refuse()"
            )
        )


async def run(store: TaskStore, clock: Clock, task: Task) -> tuple[Tasks, str]:
    """Run an instance of a task whose first step has an effect, as far as it goes within an hour."""
    tasks = Tasks([task], clock=clock)
    await tasks.sync(store)
    name = await tasks.new(store, task.name)
    for _ in range(20):
        await tasks.runner(store, RunnerOptions("r1")).run_due()
        clock.now += 180.0
    return tasks, name


@pytest.mark.parametrize(
    ("levels", "prefix"), [(955, 30), (970, 0), (MAX_DEPTH - 1, 30)], ids=["955 under 30", "970", "limit under 30"]
)
async def test_answer_that_max_depth_exceeded_fails_its_call_once(
    store: TaskStore, clock: Clock, levels: int, prefix: int
) -> None:
    calls: list[str] = []
    output = {"deep": ".".join("x" * prefix) or "deep"}

    def answer(_: dict[str, Any]) -> dict[str, Any]:
        calls.append("answer")
        return {"deep": nested(levels)}

    methods = {"before": lambda _: None, "undo": lambda _: calls.append("undo"), "answer": answer}
    steps = [step("before", reverse="undo"), step("answer", output=output)]
    _, name = await run(store, clock, Task("t", steps, methods=methods))

    done = (await store.get(name)).instance
    assert (calls, done.complete, done.success) == (["answer", "undo"], True, False)
    assert [one.error.code for one in done.status.failures] == ["ReturnNotJson"]


async def test_answer_that_the_database_refuses_fails_its_call_once(store: TaskStore, clock: Clock) -> None:
    await refuse_large_data(store)
    calls: list[str] = []

    def answer(_: dict[str, Any]) -> dict[str, Any]:
        calls.append("answer")
        return {"large": "secret" * 50_000}

    _, name = await run(store, clock, Task("t", ["answer"], methods={"answer": answer}))

    done = (await store.get(name)).instance
    assert (calls, done.complete) == (["answer"], True)
    (failure,) = done.status.failures
    assert failure.error.code == "ReturnNotJson"
    assert failure.error.message.startswith("what answer returned cannot be stored: the task store refuses the data")
    assert "secret" not in failure.error.stack


async def test_new_instance_that_cannot_be_stored_is_refused(store: TaskStore, clock: Clock) -> None:
    await refuse_large_data(store)
    tasks = Tasks([Task("t", ["m"], methods={"m": print})], clock=clock)
    for levels in (MAX_DEPTH + 1, 960, 970, 980, 5000):
        with pytest.raises(ValueError, match="it has more than 500 levels of maps and lists"):
            await tasks.new(store, "t", nested(levels))
    with pytest.raises(ValueError, match=r"the task store refuses the instance's data \(") as refused:
        await tasks.new(store, "t", {"large": "secret" * 50_000})

    assert "secret" not in str(refused.value)
    assert await tasks.new(store, "t", nested(MAX_DEPTH), instance_id="deep") == "deep"
    assert await tasks.runner(store, RunnerOptions("r1")).run_due() == 1
    assert (await store.get("deep")).instance.success


async def test_child_that_cannot_be_stored_fails_its_call(store: TaskStore, clock: Clock) -> None:
    child = Task("child", ["m"], methods={"m": print}, data={"k": 1})
    parent = Task("parent", [step("task.child.new", input={"deep": ".".join("x" * 30)})])
    tasks = Tasks([child, parent], clock=clock)
    await tasks.sync(store)
    name = await tasks.new(store, "parent", {"deep": nested(MAX_DEPTH - 1)})
    await tasks.runner(store, RunnerOptions("r1")).run_due()

    (failure,) = (await store.get(name)).instance.status.failures
    assert "it has more than 500 levels" in failure.error.message
    assert await store.listed(["child"]) == []


class GivenUpError(BaseException):
    """What a library raises past every `except Exception`."""


@pytest.mark.parametrize("kind", [GivenUpError, KeyboardInterrupt, GeneratorExit, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize("is_async", [True, False])
async def test_exception_of_any_kind_ends_only_its_own_call(
    store: TaskStore, kind: type[BaseException], is_async: bool
) -> None:
    both, go_on = asyncio.Barrier(2), asyncio.Event()

    async def raises(_: dict[str, Any]) -> None:
        await both.wait()
        raise kind("it is over")

    def raises_in_its_thread(_: dict[str, Any]) -> None:
        raise kind("it is over")

    async def waits(_: dict[str, Any]) -> None:
        if is_async:
            await both.wait()
        await go_on.wait()

    bad = Task("bad", ["m"], methods={"m": raises if is_async else raises_in_its_thread})
    tasks = Tasks([bad, Task("neighbour", ["m"], methods={"m": waits})])
    await tasks.sync(store)
    neighbour, name = await tasks.new(store, "neighbour"), await tasks.new(store, "bad")
    running_runner = tasks.runner(store, RunnerOptions("r1", slots=2, poll_seconds=0.05))
    running = asyncio.create_task(running_runner.run())
    other = tasks.runner(store, RunnerOptions("r2", poll_seconds=0.05))
    failed = (await other.run_instance(name)).instance
    go_on.set()
    there = (await other.run_instance(neighbour)).instance
    running_runner.stop()
    await running

    assert failed.status.failures[0].error.code == kind.__name__
    assert (there.success, there.status.tries) == (True, {})
