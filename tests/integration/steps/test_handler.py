"""A multi-step task as an activity's handler: the worker dies, and another continues where it stopped."""

import asyncio
import json
from typing import Any

import pytest

from activity_worker.errors import TaskFailed
from activity_worker.steps import FinalError, RunnerOptions, Task, Tasks, TaskStore, task_handler
from activity_worker.steps.model.instance import derived_id
from activity_worker.steps.runner.tasks import pause, resume
from activity_worker.testing.environment import ActivityEnvironment

QUICK = RunnerOptions("", lease_seconds=0.5, poll_seconds=0.1)


async def test_next_worker_finishes_a_dead_workers_task_without_repeats(url: str) -> None:
    task, hanging, calls = Task("order", data={"currency": "EUR"}), asyncio.Event(), []

    @task.step()
    def pay(data: dict[str, Any]) -> dict[str, Any]:
        calls.append("pay")
        return {"paid": data["amount"]}

    @task.step()
    async def ship(_: dict[str, Any]) -> None:
        calls.append("ship")
        if calls.count("ship") == 1:
            hanging.set()
            await asyncio.Event().wait()

    handler = task_handler(Tasks([task]), "order", store_url=url, key="execution.id", options=QUICK)
    work = {"execution": {"id": "e-1"}, "amount": 3}
    running = asyncio.create_task(ActivityEnvironment().run(handler, work))
    await hanging.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    answer = {**work, "currency": "EUR", "paid": 3}
    assert await ActivityEnvironment().run(handler, work) == answer
    assert calls == ["pay", "ship", "ship"]
    # The instance is complete, but its task was not concluded: the next attempt concludes it.
    assert await ActivityEnvironment().run(handler, work) == answer
    assert calls == ["pay", "ship", "ship"]
    assert await ActivityEnvironment().run(handler, {"execution": {"id": "e-2"}, "amount": 4}) != answer


async def test_failed_instance_fails_its_task_and_restarts_only_if_asked(url: str) -> None:
    broken = [True]
    task = Task("order", ["pay"])

    @task.method
    def pay(_: dict[str, Any]) -> None:
        if broken[0]:
            raise FinalError("Payment.Refused", "no funds")

    tasks = Tasks([task])
    once = task_handler(tasks, "order", store_url=url, key="id", options=QUICK)
    for _ in range(2):
        with pytest.raises(TaskFailed, match=r"no funds \(task order, step 0, instance ") as failed:
            await ActivityEnvironment().run(once, {"id": 1})
        assert failed.value.error == "Payment.Refused"
        broken[0] = False

    again = task_handler(tasks, "order", store_url=url, key="id", options=QUICK, retry_failed=True)
    assert await ActivityEnvironment().run(again, {"id": 1}) == {"id": 1}


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("value", [{}, {"id": None}, {"id": ""}, {"id": {}}, [1], "text"])
async def test_task_without_its_key_fails(url: str, value: object) -> None:
    handler = task_handler(Tasks([Task("t", ["m"], methods={"m": print})]), "t", store_url=url, key="id")

    with pytest.raises(TaskFailed, match="the input has no text or number at 'id'") as failed:
        await ActivityEnvironment().run(handler, value)
    assert failed.value.error == "Steps.NoKey"


async def test_handler_waits_for_retries_and_paused_instances(url: str, store: TaskStore) -> None:
    failures = [RuntimeError("first"), RuntimeError("second")]
    task, paused = Task("t", [{"method": "m", "retry": {"retries": 2, "delays": [0.05]}}, "n"]), asyncio.Event()

    @task.method
    async def m(_: dict[str, Any]) -> None:
        if failures:
            raise failures.pop()
        await pause(store, derived_id("t/7"))
        paused.set()

    @task.method
    def n(_: dict[str, Any]) -> None: ...

    handler = task_handler(Tasks([task]), "t", store_url=url, key="id", options=QUICK)
    running = asyncio.create_task(ActivityEnvironment().run(handler, {"id": 7}))
    await paused.wait()
    await resume(store, derived_id("t/7"))

    assert json.dumps(await running) == '{"id": 7}'
