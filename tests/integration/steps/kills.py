"""Runner processes that are killed at random, and the checks when all instances are complete.

`python -m tests.endurance steps` is the long run.
"""

import asyncio
import itertools
import multiprocessing as mp
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, cast

from sqlalchemy import func, select

from activity_worker.steps import RunnerOptions, TaskStore
from activity_worker.steps.store.rows import Revision
from activity_worker.wire.taskstore import INSTANCES
from tests.integration.steps.effect_files import EffectFiles, expected, random_errors

#: Seconds, long compared to the time from a claim's commit to a line in a file on a busy machine, so that no live lease
#: expires there.
LEASE_SECONDS = 12.0
SLOTS = 4


Made = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Run:
    """The parameters of a run: `kills` runners die one after the other, each some time after one was ready."""

    url: str
    folder: Path
    instances: int
    runners: int = 3
    kills: int = 8
    seed: int = 1
    lease_seconds: float = LEASE_SECONDS
    longest_life_seconds: float = 1.0

    @property
    def over(self) -> Path:
        """The file that says that all instances are complete."""
        return self.folder.with_name(self.folder.name + ".over")


@dataclass
class Found:
    """The result of a run; `wrong` has a sentence for each failed instance."""

    seconds: float
    kills: int
    calls: int = 0
    effects: int = 0
    takeovers: int = 0
    wrong: list[str] = field(default_factory=list)


def run(asked: Run) -> Found:
    """Create the instances, let runners work and die, and judge the end."""
    began = time.monotonic()
    rng = random.Random(asked.seed)
    names = asyncio.run(_create(asked, rng))
    kills = _work(asked, rng)
    return asyncio.run(_judge(asked, names, kills, time.monotonic() - began))


async def _create(asked: Run, rng: random.Random) -> dict[str, Made]:
    """Create the instances; return the task and the data of each."""
    store = await TaskStore.open(asked.url)
    tasks = EffectFiles(asked.folder).tasks()
    names: dict[str, Made] = {
        f"i{n}": (rng.choice(["strict", "lenient"]), random_errors(rng)) for n in range(asked.instances)
    }
    await tasks.sync(store)
    every = list(names.items())
    for first in range(0, len(every), 50):
        some = every[first : first + 50]
        await asyncio.gather(*(tasks.new(store, task, data, instance_id=name) for name, (task, data) in some))
    await store.close()
    return names


def _work(asked: Run, rng: random.Random) -> Mapping[str, float]:
    """Keep the runners alive until all instances are complete; return when each killed runner was surely dead."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    numbers, kills = itertools.count(), dict[str, float]()
    alive: dict[Connection, ForkServerProcess] = {}
    watching = context.Process(target=_watch, args=(asked,))
    watching.start()
    while not asked.over.exists():
        while len(alive) < asked.runners:
            # Each has a pipe of its own: a killed process must not hold a shared lock.
            ours, its = context.Pipe()
            name = f"runner-{next(numbers)}"
            alive[ours] = context.Process(target=_runner, args=(asked, name, its), name=name)
            alive[ours].start()
        if len(kills) >= asked.kills:
            watching.join()
            break
        if ready := wait(list(alive), 1.0):
            watching.join(rng.uniform(0.05, asked.longest_life_seconds))
            if asked.over.exists():
                break
            victim = alive.pop(cast("Connection", rng.choice(ready)))
            victim.kill()
            victim.join()
            kills[victim.name] = time.monotonic()
    for process in [*alive.values(), watching]:
        process.join(60)
        assert process.exitcode == 0, f"{process.name} ended with {process.exitcode}"
    return kills


def _watch(asked: Run) -> None:
    """Report when all instances are complete, or that nothing changes any more."""

    async def watched() -> None:
        store = await TaskStore.open(asked.url, migrate=False)
        left = select(func.count()).select_from(INSTANCES).where(INSTANCES.c.complete.is_(False))
        last, since = -1, time.monotonic()
        while time.monotonic() < since + 120:
            async with store.engine.connect() as connection:
                now = (await connection.execute(left)).scalar_one()
            if now == 0:
                break
            if now != last:
                last, since = now, time.monotonic()
            await asyncio.sleep(0.5)
        await store.close()

    asyncio.run(watched())
    asked.over.touch()


def _runner(asked: Run, name: str, ready: Connection) -> None:
    async def worked() -> None:
        store = await TaskStore.open(asked.url, migrate=False)
        files = EffectFiles(asked.folder)
        tasks = files.tasks()
        options = RunnerOptions(name, slots=SLOTS, lease_seconds=asked.lease_seconds, poll_seconds=0.2)
        runner = tasks.runner(store, options)
        working = asyncio.create_task(runner.run())
        reported = False
        while not asked.over.exists():
            # On a busy machine a runner may not have called anything yet; its death would prove nothing.
            if files.called.is_set() and not reported:
                ready.send("ready")
                reported = True
            await asyncio.sleep(0.1)
        runner.stop()
        await working
        await store.close()

    asyncio.run(worked())


async def _judge(asked: Run, names: dict[str, Made], kills: Mapping[str, float], seconds: float) -> Found:
    store = await TaskStore.open(asked.url, migrate=False)
    files, found = EffectFiles(asked.folder), Found(seconds, len(kills))
    for name, (task, data) in names.items():
        there = (await store.get(name)).instance
        history = await store.history(name)
        success, effects = expected(task, data)
        if (there.complete, there.success) != (True, success):
            found.wrong.append(f"{name}: complete {there.complete}, success {there.success}, not {success}")
        if (seen := files.effects(name)) != effects:
            found.wrong.append(f"{name}: its effects were {seen}, not {effects}")
        found.wrong += [f"{name}: {words}" for words in _leases(history)]
        found.wrong += [f"{name}: {words}" for words in fences(files, name, history)]
        found.wrong += [f"{name}: {words}" for words in together(files.lines(name), kills)]
        found.effects += len(seen)
        found.calls += sum(bool(one.status["running"]) for one in history)
        found.takeovers += sum(
            bool(a.status["running"]) and a.runner != b.runner for a, b in itertools.pairwise(history)
        )
    await store.close()
    return found


def together(lines: Sequence[Mapping[str, Any]], kills: Mapping[str, float]) -> list[str]:
    """Return a sentence for each call that began during another one, by the calls' own lines and the kills."""
    wrong: list[str] = []
    open_calls: dict[str, float] = {}
    for line in lines:
        if line.get("call") == "begins":
            others = {one for one in open_calls if kills.get(one, float("inf")) > line["at"]}
            wrong += [f"{line['runner']} called at {line['at']} while {one} did" for one in others]
            open_calls[line["runner"]] = line["at"]
        elif line.get("call") == "ends":
            open_calls.pop(line["runner"], None)
    left = [one for one in open_calls if one not in kills]
    return [*wrong, *(f"{one} never ended its call and was not killed" for one in left)]


def _leases(history: Sequence[Revision]) -> list[str]:
    """Return a sentence for each takeover before the lease had expired."""
    return [
        f"{after.runner} took it from {before.runner} at {after.at}, with a lease until {before.next_run_time}"
        for before, after in itertools.pairwise(history)
        if before.status["running"] and after.runner != before.runner and after.at < (before.next_run_time or 0.0)
    ]


def fences(files: EffectFiles, name: str, history: Sequence[Revision]) -> list[str]:
    """Return a sentence for each call without a revision of its own by its runner, in the store's order."""
    owners = {one.number: one.runner for one in history if one.status["running"]}
    lines = files.lines(name)
    wrong = [
        f"{line} was written under no lease of its own"
        for line in lines
        if owners.get(line["revision"]) != line["runner"]
    ]
    revisions = [line["revision"] for line in lines]
    if revisions != sorted(revisions):
        wrong.append(f"its calls were not made in order: {revisions}")
    tried = Counter(line["revision"] for line in lines if "try" in line)
    return [*wrong, *(f"revision {number} was tried {times} times" for number, times in tried.items() if times > 1)]
