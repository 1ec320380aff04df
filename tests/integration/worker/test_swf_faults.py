"""Faults under workers of Amazon SWF. The judge is each workflow's own history: every activity is closed once.

A decider schedules an activity again that has failed or timed out, until the workflow has one that is completed.
"""

import asyncio
import contextlib
import functools
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activity_worker.testing import FakeActivityTask, FakeTimeouts, Fault, SwfFake, SwfFakeSettings
from activity_worker.testing.fake_swf_model import FakeWorkflow

from .fake_operator import FakeOperator
from .process import WorkerProcess, reporting_env, worker
from .test_swf import run_of

WORKFLOWS = 40
#: Long enough for a busy machine, short enough that a killed worker's tasks come back within the test.
TIMEOUTS = FakeTimeouts(heartbeat_seconds=8.0)


@pytest.fixture
async def fake() -> AsyncIterator[SwfFake]:
    async with SwfFake(settings=SwfFakeSettings(poll_hold_seconds=2.0), domains=["shop"]) as fake:
        yield fake


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """The environment of a worker in a pod, which polls for ever: on a terminal five failed polls end a worker."""
    operator = await FakeOperator().start()
    yield reporting_env(operator.port, tmp_path)
    await operator.stop()


class Decider:
    """Schedules one activity a workflow, and another one after each that was not completed."""

    def __init__(self, fake: SwfFake) -> None:
        self.fake = fake
        self.workflows: list[FakeWorkflow] = [fake.start_workflow("shop") for _ in range(WORKFLOWS)]
        for workflow in self.workflows:
            self._schedule(workflow)

    async def finish(self) -> None:
        """Decide until every workflow has a completed activity."""
        while not all(self._over(workflow) for workflow in self.workflows):
            closed = sum(task.ended_at is not None for task in self.fake.tasks)
            await self.fake.until(functools.partial(self._more_closed, closed))
            for workflow in self.workflows:
                if not self._over(workflow) and workflow.tasks[-1].ended_at is not None:
                    self._schedule(workflow)

    def check(self) -> None:
        """Compare every history with the promise."""
        for workflow in self.workflows:
            closings = [task.closing_events() for task in workflow.tasks]
            assert [len(events) for events in closings] == [1] * len(workflow.tasks), closings
            completed = [events for events in closings if events == ["ActivityTaskCompleted"]]
            assert len(completed) == 1, closings
            assert workflow.tasks[-1].result == str(2 * self.workflows.index(workflow))

    def _more_closed(self, than: int) -> bool:
        return sum(task.ended_at is not None for task in self.fake.tasks) > than

    @staticmethod
    def _over(workflow: FakeWorkflow) -> bool:
        return any(task.state == "completed" for task in workflow.tasks)

    def _schedule(self, workflow: FakeWorkflow) -> FakeActivityTask:
        number = str(self.workflows.index(workflow))
        (task,) = self.fake.schedule("shop", "charges", number, name="double", timeouts=TIMEOUTS, workflow=workflow)
        return task


async def at_least(fake: SwfFake, what: str, number: int) -> None:
    """Wait until the fake has counted `what` at least `number` times."""
    await fake.until(lambda: fake.counts.get(what, 0) >= number)


async def run_with(fake: SwfFake, trouble: "asyncio.Task[None]", decider: Decider) -> None:
    """Let the decider finish beside the trouble, and judge."""
    async with asyncio.timeout(150):
        await decider.finish()
    trouble.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await trouble
    decider.check()


async def test_killed_workers_and_children_lose_no_activity(fake: SwfFake, pod: dict[str, str]) -> None:
    decider = Decider(fake)
    chance = random.Random(7)

    async def kill_in_turn() -> None:
        """Kill a child or the whole worker after every few tasks; another worker takes its place."""
        while True:
            async with worker(*run_of(fake, "--slots", "2"), env=pod) as running:
                await running.line_with("worker ready")
                started = fake.counts.get("started", 0)
                await at_least(fake, "started", started + 4)
                if chance.random() < 0.5:
                    kill_child(running)
                    await at_least(fake, "started", started + 8)

    await run_with(fake, asyncio.create_task(kill_in_turn()), decider)


def kill_child(running: WorkerProcess) -> None:
    with contextlib.suppress(ProcessLookupError, FileNotFoundError, IndexError):
        os.kill(running.children()[0], signal.SIGKILL)


async def test_throttling_and_lost_replies_close_every_activity_once(fake: SwfFake, pod: dict[str, str]) -> None:
    decider = Decider(fake)
    for operation in ("PollForActivityTask", "RespondActivityTaskCompleted"):
        fake.faults.throttle(operation, per_second=20.0, burst=2.0)
    for operation in ("PollForActivityTask", "RespondActivityTaskCompleted", "RecordActivityTaskHeartbeat"):
        fake.inject(operation, Fault.DROP_REPLY, 3)
        fake.inject(operation, Fault.SERVER_ERROR, 1)

    async with worker(*run_of(fake, "--slots", "4"), env=pod):
        await run_with(fake, asyncio.create_task(asyncio.sleep(0)), decider)

    assert fake.faults.seen["RespondActivityTaskCompleted:drop-reply"] == 3
    assert fake.faults.seen["PollForActivityTask:drop-reply"] == 3


async def test_steps_of_the_services_clock_close_every_activity_once(fake: SwfFake, pod: dict[str, str]) -> None:
    decider = Decider(fake)

    async def step() -> None:
        for offset in (900.0, -900.0, 0.0):
            fake.settings.clock_offset_seconds = offset
            completed = fake.counts.get("completed", 0)
            await at_least(fake, "completed", min(completed + 8, WORKFLOWS))

    async with worker(*run_of(fake), env=pod):
        await run_with(fake, asyncio.create_task(step()), decider)

    assert fake.counts["scheduled"] == WORKFLOWS
    assert struck(fake, "wrong-clock") >= 2, "each of the two steps is noticed"


async def test_credentials_that_are_renewed_close_every_activity_once(
    fake: SwfFake, pod: dict[str, str], tmp_path: Path
) -> None:
    """The service refuses the old key for ever, so the worker must read the new one from the profile."""
    decider = Decider(fake)
    credentials = tmp_path / "credentials"
    credentials.write_text("[default]\naws_access_key_id = old\naws_secret_access_key = word\n")
    env = pod | {"AWS_SHARED_CREDENTIALS_FILE": str(credentials), "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}

    async def rotate() -> None:
        await at_least(fake, "completed", 5)
        await asyncio.to_thread(
            credentials.write_text, "[default]\naws_access_key_id = new\naws_secret_access_key = word\n"
        )
        fake.revoke_key("old")

    async with worker(*run_of(fake), env=env):
        await run_with(fake, asyncio.create_task(rotate()), decider)

    assert struck(fake, "revoked-key") >= 1


def struck(fake: SwfFake, fault: str) -> int:
    """Return how many calls of all operations a fault has refused."""
    return sum(times for name, times in fake.faults.seen.items() if name.endswith(f":{fault}"))
