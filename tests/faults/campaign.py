"""Plays many runs on several control planes: the runs without faults first, then each job on the next free one."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from tests.faults.fault_cluster import FaultCluster, fault_cluster
from tests.faults.matrix import Job
from tests.faults.replicas import ForkServer, fork_server
from tests.faults.runs import Run, play
from tests.faults.scenarios import SCENARIOS
from tests.faults.stale import STALE

#: The number of control planes. A run mostly waits for Leases to expire and windows to pass, so several fit.
LANES = int(os.environ.get("FAULTS_LANES", "3"))

T = TypeVar("T")
R = TypeVar("R")
L = TypeVar("L")
Lane = tuple[FaultCluster, ForkServer]


@dataclass(frozen=True, slots=True)
class Played:
    """A job and its run."""

    job: Job
    run: Run


@asynccontextmanager
async def lanes(count: int = LANES) -> AsyncIterator[list[Lane]]:
    """Start `count` control planes."""
    async with AsyncExitStack() as stack:
        found: list[Lane] = []
        for _ in range(count):
            here = await stack.enter_async_context(fault_cluster())
            found.append((here, await stack.enter_async_context(fork_server(here.folder))))
        yield found


async def spread(where: Sequence[L], work: Iterable[T], play_one: Callable[[L, T], Awaitable[R]]) -> list[R]:
    """Play each piece of work on the next free lane; return the results in the order of the work."""
    waiting = list(enumerate(work))[::-1]
    found: dict[int, R] = {}

    async def drive(lane: L) -> None:
        while waiting:
            number, piece = waiting.pop()
            found[number] = await play_one(lane, piece)

    async with asyncio.TaskGroup() as group:
        for lane in where:
            group.create_task(drive(lane))
    return [found[number] for number in sorted(found)]


async def references(where: Sequence[Lane], names: Sequence[str]) -> dict[str, Run]:
    """Play the named scenarios without faults.

    Raises RuntimeError when one fails, because nothing can be compared then.
    """

    async def play_one(lane: Lane, name: str) -> Run:
        return await play(*lane, SCENARIOS[name])

    runs = await spread(where, names, play_one)
    for run in runs:
        if not run.good:
            raise RuntimeError(f"{run.scenario} without any fault: {run.wrong} {run.harm.words}\n{run.log}")
    return {run.scenario: run for run in runs}


async def play_all(
    where: Sequence[Lane],
    jobs: Iterable[Job],
    expected: dict[str, Run],
    on_end: Callable[[Played], None] = lambda _: None,
) -> list[Played]:
    """Play the jobs; return them with their runs.

    A run's end is compared with `expected` where the scenario has an entry there. `on_end` is called with each job when
    it ends.
    """

    async def play_one(lane: Lane, job: Job) -> Played:
        reference = expected.get(job.scenario)
        run = await play(
            *lane,
            (SCENARIOS | STALE)[job.scenario],
            job.faults,
            expected=None if reference is None else reference.state,
            replicas=job.replicas,
            sweep_seconds=job.sweep_seconds,
        )
        played = Played(job, run)
        with contextlib.suppress(BrokenPipeError):
            on_end(played)
        return played

    return await spread(where, jobs, play_one)
