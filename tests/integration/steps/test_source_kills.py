"""Workers on one store whose handlers and supervisors are killed at random: nothing is stuck, nothing is done twice."""

import asyncio
import contextlib
import os
import random
import signal
from pathlib import Path

import pytest
from sqlalchemy import func, select

from activity_worker.contract import Env
from activity_worker.steps import TaskStore
from activity_worker.wire.taskstore import INSTANCES
from tests.integration.steps.kills import fences
from tests.integration.steps.world import World, expected, troubles
from tests.integration.worker.process import WorkerProcess, worker
from tests.servers.postgres import new_database

INSTANCES_RUN = int(os.environ.get("ACTIVITYPOOL_KILL_INSTANCES", "60"))
HANDLERS_KILLED, WORKERS_KILLED = 12, 2
HANDLER = "tests.integration.steps.pool_tasks:world"


@pytest.mark.timeout(max(300, 2 * INSTANCES_RUN))
async def test_killed_handlers_and_workers_leave_nothing_stuck_and_nothing_done_twice(
    server: str, tmp_path: Path
) -> None:
    url = await new_database(server)
    folder = tmp_path / "world"
    folder.mkdir()
    world, store, rng = World(folder), await TaskStore.open(url), random.Random(5)
    names = {}
    for number in range(INSTANCES_RUN):
        task = rng.choice(["strict", "lenient"])
        names[await world.tasks().new(store, task, troubles(rng), instance_id=f"i{number}")] = task

    async with contextlib.AsyncExitStack() as stack:
        env = {Env.STORE_URL: url, Env.STORE_LEASE_SECONDS: "5", "POOL_FOLDER": str(folder)}
        workers = [await _started(stack, env) for _ in range(2)]
        for one in workers:
            await one.line_with("worker ready")
        for kill in range(HANDLERS_KILLED + WORKERS_KILLED):
            if await _left(store) == 0:
                break
            await asyncio.sleep(rng.uniform(0.1, 0.5))
            at = rng.randrange(len(workers))
            if kill % (1 + HANDLERS_KILLED // WORKERS_KILLED) == 0:
                workers[at].process.kill()
                await workers[at].process.wait()
            else:
                _kill_a_handler(workers[at], rng)
            await _all_alive(workers, stack, env)
        async with asyncio.timeout(max(200, 2 * INSTANCES_RUN)):
            while await _left(store):
                await _all_alive(workers, stack, env)
                await asyncio.sleep(0.2)

    wrong, lost = [], 0
    for name, task in names.items():
        there, history = (await store.get(name)).instance, await store.history(name)
        should = expected(task, history[0].data or {})
        if (there.success, world.effects(name)) != should:
            wrong.append(f"{name}: {there.success} {world.effects(name)}, not {should}")
        wrong += [f"{name}: {words}" for words in fences(world, name, history)]
        lost += sum(one.status["error"].get("method", {}).get("code") == "RunnerLost" for one in history)
    await store.close()
    assert wrong == []
    assert lost > 0


async def _all_alive(workers: list[WorkerProcess], stack: contextlib.AsyncExitStack, env: dict[str, str]) -> None:
    """Start ended workers again, as a container is: one whose handler was killed before it was ready ends too."""
    for at, one in enumerate(workers):
        if one.process.returncode is not None:
            workers[at] = await _started(stack, env)


def _kill_a_handler(running: WorkerProcess, rng: random.Random) -> None:
    with contextlib.suppress(OSError):
        if children := running.children():
            os.kill(rng.choice(children), signal.SIGKILL)


async def _started(stack: contextlib.AsyncExitStack, env: dict[str, str]) -> WorkerProcess:
    flags = ("run", HANDLER, "--slots", "2", "--log-format", "json")
    return await stack.enter_async_context(worker(*flags, env=env))


async def _left(store: TaskStore) -> int:
    async with store.engine.connect() as connection:
        chosen = select(func.count()).select_from(INSTANCES).where(INSTANCES.c.complete.is_(False))
        return int((await connection.execute(chosen)).scalar_one())
