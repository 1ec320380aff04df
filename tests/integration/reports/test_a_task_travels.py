"""A task's path: from a poll of the operator into a real worker process and to its end, over TLS and HTTP."""

from contextlib import AsyncExitStack

from tests.eventually import eventually
from tests.integration.reports.harness import TaskReportHarness, succeeded


async def test_tasks_that_waited_for_a_worker_run_once_each(harness: TaskReportHarness) -> None:
    async with harness.operator() as operator:
        operator.look()
        harness.fake.schedule(harness.arn, '{"n": 1}', count=7, heartbeat_seconds=10.0)
        await eventually("the operator holds seven tasks", lambda: operator.held() == 7)
        async with harness.worker("doubles"):
            await eventually("seven executions have succeeded", lambda: succeeded(harness) == 7)
            await eventually("no lease is recorded any more", lambda: not harness.records.kept)

    assert {task.conclusions for task in harness.fake.tasks} == {1}
    assert all(task.worker_name.startswith("activitypool-operator/") for task in harness.fake.tasks)
    assert harness.fake.counts.get("handed_to_nobody", 0) == 0
    assert harness.records.calls["claim"] == 7


async def test_task_survives_the_operator_that_leased_it(harness: TaskReportHarness) -> None:
    async with AsyncExitStack() as stack:
        async with harness.operator() as first:
            first.look()
            harness.fake.schedule(harness.arn, '{"n": 1}', count=3, heartbeat_seconds=10.0)
            await eventually("the first operator holds three tasks", lambda: first.held() == 3)
        second = await stack.enter_async_context(harness.operator())
        assert second.held() == 3
        # Half a second apart, for longer than a task lives without heartbeats.
        await eventually(
            "every task has 24 heartbeats", lambda: all(task.heartbeats >= 24 for task in harness.fake.tasks)
        )
        assert harness.fake.counts.get("timed_out", 0) == 0
        await stack.enter_async_context(harness.worker("doubles"))
        await eventually("three executions have succeeded", lambda: succeeded(harness) == 3)
        await eventually("no lease is recorded any more", lambda: not harness.records.kept)

    assert {task.conclusions for task in harness.fake.tasks} == {1}
