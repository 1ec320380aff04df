"""The run itself: a pool, forty executions, and what became of both."""

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from tests.demo import plan
from tests.demo.demo_state import RUNNING, DemoState
from tests.demo.screen import Screen
from tests.demo.verdict import Outcome, impatience, over
from tests.demo.watching import watch
from tests.e2e.executions import Executions

#: Seconds between two pictures, and between two looks at the list of executions: the service tells no news by itself.
PICTURE_SECONDS = 0.2
LOOK_SECONDS = 1.0


class Run:
    """One run in a namespace that holds the pool already, watched from its making on."""

    def __init__(self, executions: Executions, screen: Screen) -> None:
        self.scene = DemoState()
        self._executions = executions
        self._screen = screen
        self._opened = time.monotonic()

    async def play(self, kubeconfig: Path, namespace: str) -> Outcome:
        """Wait for the pool, start the executions, wait until all is over or hopeless; returns what was measured."""
        given_up = ""
        async with _beside(watch(kubeconfig, namespace, self.scene), self._draw()):
            given_up = await self._until(lambda demo_state: demo_state.ready.get("status") == "True")
            before = len(self.scene.pods)
            if not given_up:
                await self._start()
                async with _beside(self._look()):
                    given_up = await self._until(over)
            self._screen.show(self.scene, time.monotonic())
        return await asyncio.to_thread(self._measure, before, given_up)

    async def _until(self, holds: Callable[[DemoState], bool]) -> str:
        """Wait until it holds; returns "", or why it is pointless to wait any longer."""
        while not holds(self.scene):
            if why := impatience(self.scene, time.monotonic(), self._opened):
                return why
            await asyncio.sleep(PICTURE_SECONDS)
        return ""

    async def _draw(self) -> None:
        while True:
            self._screen.show(self.scene, time.monotonic())
            await asyncio.sleep(PICTURE_SECONDS)

    async def _start(self) -> None:
        self.scene.start(0, time.monotonic())
        for number, seconds in enumerate(plan.durations(), start=1):
            work = json.dumps({"n": number, "seconds": seconds})
            start, machine = self._executions.states.start_execution, self._executions.machine
            await asyncio.to_thread(start, stateMachineArn=machine, input=work)
            self.scene.start(number, time.monotonic())

    async def _look(self) -> None:
        """Ask how the executions are until all have ended."""
        while not self.scene.all_ended:
            try:
                found = await asyncio.to_thread(self._executions.statuses)
            except (BotoCoreError, ClientError) as error:
                self.scene.miss(f"the emulator does not answer: {error}", time.monotonic())
            else:
                self.scene.count({RUNNING: 0, **Counter(found)}, time.monotonic())
            await asyncio.sleep(LOOK_SECONDS)

    def _measure(self, before: int, given_up: str) -> Outcome:
        demo_state = self.scene
        first = (
            None
            if demo_state.first_replica is None or demo_state.began is None
            else demo_state.first_replica - demo_state.began
        )
        outcome = Outcome(
            executions=sum(demo_state.statuses.values()),
            succeeded=demo_state.succeeded,
            workers_before=before,
            most_workers=demo_state.most_ready,
            workers_left=max(len(demo_state.pods), demo_state.replicas),
            first_replica_seconds=first,
            interrupted=None,
            lost=0,
            given_up=given_up,
        )
        try:
            attempts = self._executions.attempts()
        except (BotoCoreError, ClientError):
            return outcome
        interrupted = sum(1 for attempt in attempts if attempt.interrupted)
        concluded = sum(1 for attempt in attempts if attempt.ending in {"succeeded", ""})
        return replace(outcome, interrupted=interrupted, lost=len(attempts) - concluded - interrupted)


@contextlib.asynccontextmanager
async def _beside(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run the works beside the body: cancelled at its end, and an error of one ends the body."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
        yield
        for task in tasks:
            task.cancel()
