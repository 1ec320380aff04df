"""Runs of the election scenarios: what is observed in each, and how it is judged."""

import itertools
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from tests.faults import clock_wall
from tests.faults.campaign import Lane, Played, spread
from tests.faults.election import ELECTIONS, Election
from tests.faults.election_harness import ElectionHarness, election_harness
from tests.faults.fault_cluster import FaultCluster
from tests.faults.forked_election_operators import AS_SHIPPED
from tests.faults.matrix import Job
from tests.faults.replicas import ForkServer, fork_server
from tests.faults.runs import Run, judged

PART = "election"
_OPERATORS = "tests.faults.forked_election_operators"
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ElectionCluster:
    """A control plane and its two sources of operators: with clocks that can be set, and as shipped."""

    cluster: FaultCluster
    faked: ForkServer
    as_shipped: ForkServer


@asynccontextmanager
async def election_clusters(where: Sequence[Lane]) -> AsyncIterator[list[ElectionCluster]]:
    """Start what the election needs beside each control plane."""
    environment = clock_wall.environment()
    async with AsyncExitStack() as stack:
        found = []
        for cluster, _ in where:
            faked = await stack.enter_async_context(fork_server(cluster.folder, _OPERATORS, **environment))
            shipped = await stack.enter_async_context(fork_server(cluster.folder, _OPERATORS, AS_SHIPPED))
            found.append(ElectionCluster(cluster, faked, shipped))
        yield found


async def play_elections(
    where: Sequence[Lane], names: Iterable[str], on_end: Callable[[Played], None] = lambda _: None
) -> list[Played]:
    """Play the named scenarios; `on_end` is called with each when it ends."""

    async def play_one(prepared: ElectionCluster, name: str) -> Played:
        played = Played(Job(PART, name, (), replicas=2), await play(prepared, ELECTIONS[name]))
        on_end(played)
        return played

    async with election_clusters(where) as ready:
        return await spread(ready, names, play_one)


async def play(prepared: ElectionCluster, scenario: Election) -> Run:
    """Play one scenario and judge it."""
    fork_server = prepared.as_shipped if scenario.as_shipped else prepared.faked
    number = f"e{os.getpid()}-{next(_numbers)}"
    async with election_harness(
        prepared.cluster, fork_server, number, scenario.task_seconds, **scenario.timing
    ) as election:
        began, measured, wrong = time.monotonic(), "", []
        try:
            await election.set_up_pools(scenario.workers)
            began = time.monotonic()
            measured = await scenario.act(election) or ""
            await election.settled()
            wrong += _moved(election, await election.pods(), grows=scenario.grows)
            await election.conclude(scenario.workers)
        except (AssertionError, TimeoutError) as error:
            wrong.append(str(error))
        seconds = time.monotonic() - began
        return judged(election.harness, scenario.name, wrong, seconds, ends=scenario.ends, measured=measured)


def _moved(election: ElectionHarness, after: dict[str, str], *, grows: bool) -> list[str]:
    """Return one sentence for each pod that was removed or added although no change of the pool asked for it."""
    gone = [name for uid, name in election.before.items() if uid not in after]
    come = [name for uid, name in after.items() if uid not in election.before and not grows]
    return [f"pod {name} went" for name in gone] + [f"pod {name} came" for name in come]
