"""Handlers and supervisors on one store are killed at random: no instance is stuck, no effect happens twice."""

import asyncio
import contextlib
import os
import random
import signal
from pathlib import Path
from typing import Self

import pytest
from sqlalchemy import func, select

from activity_worker.contract import Env
from activity_worker.steps import TaskStore
from activity_worker.wire.taskstore import HISTORY, INSTANCES
from tests.eventually import eventually
from tests.integration.steps.effect_files import EffectFiles, expected, random_errors
from tests.integration.steps.kills import fences
from tests.integration.worker.process import WorkerProcess, worker
from tests.servers.postgres import new_database

INSTANCES_RUN = int(os.environ.get("ACTIVITYPOOL_KILL_INSTANCES", "60"))
HANDLERS_KILLED, WORKERS_KILLED = 12, 2
#: Revisions between two kills: where processes start slowly, all would die before they work.
LIVED = 4


@pytest.mark.timeout(max(600, 2 * INSTANCES_RUN))
async def test_killed_handlers_and_workers_leave_nothing_stuck_or_repeated(server: str, tmp_path: Path) -> None:
    url = await new_database(server)
    folder = tmp_path / "files"
    folder.mkdir()
    files, store, rng = EffectFiles(folder), await TaskStore.open(url), random.Random(5)
    names = {}
    for number in range(INSTANCES_RUN):
        task = rng.choice(["strict", "lenient"])
        names[await files.tasks().new(store, task, random_errors(rng), instance_id=f"i{number}")] = task

    async with contextlib.AsyncExitStack() as stack:
        workers = await Workers(stack, "tests.integration.steps.pool_tasks:files", url, POOL_FOLDER=str(folder)).start()
        assert await workers.work_and_die(store, rng) > 0

    wrong, lost = [], 0
    for name, task in names.items():
        there, history = (await store.get(name)).instance, await store.history(name)
        should = expected(task, history[0].data or {})
        if (there.success, files.effects(name)) != should:
            wrong.append(f"{name}: {there.success} {files.effects(name)}, not {should}")
        wrong += [f"{name}: {words}" for words in fences(files, name, history)]
        lost += sum(one.status["error"].get("method", {}).get("code") == "RunnerLost" for one in history)
    await store.close()
    assert wrong == []
    assert lost > 0


class Workers:
    """Two workers of two slots each, and the replacements of ended ones."""

    def __init__(self, stack: contextlib.AsyncExitStack, handler: str, url: str, **env: str) -> None:
        self._stack = stack
        self._handler = handler
        self._env = {Env.STORE_URL.value: url, Env.STORE_LEASE_SECONDS.value: "5", **env}
        self._alive: list[WorkerProcess] = []

    async def start(self) -> Self:
        """Start them and wait until they are ready."""
        self._alive = [await self._one() for _ in range(2)]
        for one in self._alive:
            await one.line_with("worker ready")
        return self

    async def work_and_die(self, store: TaskStore, rng: random.Random) -> int:
        """Kill handlers, and sometimes a worker, until all instances are complete; return the number of kills."""
        deaths = 0
        for kill in range(HANDLERS_KILLED + WORKERS_KILLED):
            if not await self._goes_on(store):
                break
            await asyncio.sleep(rng.uniform(0.1, 0.5))
            victim = rng.choice(self._alive)
            if kill % (1 + HANDLERS_KILLED // WORKERS_KILLED) == 0:
                # The worker may have ended by itself, because of the handler that was killed before.
                with contextlib.suppress(ProcessLookupError):
                    victim.process.kill()
                await victim.process.wait()
            else:
                _kill_a_handler(victim, rng)
            deaths += 1
            await self._replaced()

        async def all_complete() -> bool:
            await self._replaced()
            return not await _left(store)

        seconds = max(200, 2 * INSTANCES_RUN)
        await eventually("all instances are complete", all_complete, seconds=seconds, every_seconds=0.2)
        return deaths

    async def _goes_on(self, store: TaskStore) -> bool:
        """Wait until some more revisions are written, or all is complete; return whether anything is left."""
        enough = await _revisions(store) + LIVED

        async def gone_on() -> bool:
            await self._replaced()
            return not await _left(store) or await _revisions(store) >= enough

        await eventually(f"{LIVED} more revisions are written", gone_on, seconds=100)
        return await _left(store) > 0

    async def _replaced(self) -> None:
        """Restart ended workers like a kubelet; a worker also ends when its handler is killed before it is ready."""
        self._alive = [one if one.process.returncode is None else await self._one() for one in self._alive]

    async def _one(self) -> WorkerProcess:
        flags = ("run", self._handler, "--slots", "2", "--log-format", "json")
        return await self._stack.enter_async_context(worker(*flags, env=self._env))


def _kill_a_handler(running: WorkerProcess, rng: random.Random) -> None:
    with contextlib.suppress(OSError):
        if children := running.children():
            os.kill(rng.choice(children), signal.SIGKILL)


async def _left(store: TaskStore) -> int:
    async with store.engine.connect() as connection:
        chosen = select(func.count()).select_from(INSTANCES).where(INSTANCES.c.complete.is_(False))
        return int((await connection.execute(chosen)).scalar_one())


async def _revisions(store: TaskStore) -> int:
    async with store.engine.connect() as connection:
        return int((await connection.execute(select(func.count()).select_from(HISTORY))).scalar_one())
