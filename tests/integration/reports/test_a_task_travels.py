"""A task's path: from a poll of the operator into a real worker process and to its end, over TLS and HTTP."""

from contextlib import AsyncExitStack

from tests.eventually import eventually
from tests.integration.reports.stage import Stage, succeeded


async def test_tasks_that_waited_for_a_worker_run_once_each(stage: Stage) -> None:
    async with stage.operator() as operator:
        operator.look()
        stage.fake.schedule(stage.arn, '{"n": 1}', count=7, heartbeat_seconds=10.0)
        await eventually("the operator holds seven tasks", lambda: operator.held() == 7)
        async with stage.worker("doubles"):
            await eventually("seven executions have succeeded", lambda: succeeded(stage) == 7)
            await eventually("no lease is recorded any more", lambda: not stage.records.kept)

    assert {task.conclusions for task in stage.fake.tasks} == {1}
    assert all(task.worker_name.startswith("activitypool-operator/") for task in stage.fake.tasks)
    assert stage.fake.counts.get("handed_to_nobody", 0) == 0
    assert stage.records.calls["claim"] == 7


async def test_task_survives_the_operator_that_leased_it(stage: Stage) -> None:
    async with AsyncExitStack() as stack:
        async with stage.operator() as first:
            first.look()
            stage.fake.schedule(stage.arn, '{"n": 1}', count=3, heartbeat_seconds=10.0)
            await eventually("the first operator holds three tasks", lambda: first.held() == 3)
        second = await stack.enter_async_context(stage.operator())
        assert second.held() == 3
        # Half a second apart, for longer than a task lives without heartbeats.
        await eventually(
            "every task has 24 heartbeats", lambda: all(task.heartbeats >= 24 for task in stage.fake.tasks)
        )
        assert stage.fake.counts.get("timed_out", 0) == 0
        await stack.enter_async_context(stage.worker("doubles"))
        await eventually("three executions have succeeded", lambda: succeeded(stage) == 3)
        await eventually("no lease is recorded any more", lambda: not stage.records.kept)

    assert {task.conclusions for task in stage.fake.tasks} == {1}
