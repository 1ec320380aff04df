"""`python -m tests.faults [--scenario NAME] [--part PART] [--every N]` plays every fault in every scenario.

It prints a table of the runs at the end.
"""

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterable

from tests.faults import election_runs, matrix, node_loss, pairs, stale, table, token_runs
from tests.faults.campaign import LANES, Played, lanes, play_all, references
from tests.faults.election import ELECTIONS
from tests.faults.matrix import Job
from tests.faults.runs import Run
from tests.faults.scenarios import SCENARIOS

PARTS = (
    "crash",
    "crash, standby",
    "call fails",
    "worker's call",
    "read fails",
    "event",
    "watch",
    pairs.PART,
    "stale",
    election_runs.PART,
    node_loss.PART,
    token_runs.PART,
)
#: Parts whose scenarios each start their own control plane: part -> (the scenarios' names, how to play one).
OF_THEIR_OWN: dict[str, tuple[Iterable[str], Callable[[str], Awaitable[Played]]]] = {
    node_loss.PART: (node_loss.NODE_LOSSES, node_loss.play),
    token_runs.PART: (token_runs.TOKEN_LOSSES, token_runs.play),
}
#: Parts that are not compared with a run without faults.
WITHOUT_TWIN = {election_runs.PART, *OF_THEIR_OWN}


def jobs(run: Run) -> list[Job]:
    """Return every job that can be derived from a scenario's run without faults."""
    return [
        *matrix.crashes(run.scenario, run.calls),
        *matrix.crashes(run.scenario, run.calls, replicas=2),
        *matrix.failing_calls(run.scenario, run.calls),
        *matrix.failing_reads(run.scenario),
        *matrix.events(run.scenario, run.events),
        *matrix.broken_watches(run.scenario, run.events),
        *pairs.pairs(run.scenario, run.calls, run.events),
    ]


def tell(played: Played) -> None:
    """Print one line for a run, and the details of a run that failed."""
    run, faults = played.run, " + ".join(map(str, played.job.faults))
    verdict = "ok" if run.good else "WRONG"
    missed = "" if run.struck else " (missed)"
    standby = ", with a standby" if played.job.replicas > 1 else ""
    print(
        f"{verdict:<6}{run.seconds:5.1f} s  {run.scenario:<9} {played.job.part}: {faults}{standby}{missed}", flush=True
    )
    if run.log:
        print(f"      {run.wrong} {run.harm} {run.state}", *run.way, run.log, sep="\n", flush=True)
    elif run.way:
        print(*run.way, sep="\n", flush=True)


async def campaign(options: argparse.Namespace) -> int:
    """Play what the command line selects; return the exit code."""
    began = time.monotonic()
    parts = set(options.part or PARTS)
    async with lanes(options.lanes if parts - OF_THEIR_OWN.keys() else 0) as where:
        names = options.scenario or list(SCENARIOS)
        expected = await references(where, names) if parts - WITHOUT_TWIN else {}
        every = [*(job for run in expected.values() for job in jobs(run)), *stale.JOBS]
        chosen = [job for job in every if job.part in parts]
        chosen = [job for job in chosen if options.only in " + ".join(map(str, job.faults))][
            options.start :: options.every
        ]
        print(f"{len(chosen)} runs on {len(where)} control planes", flush=True)
        played = await play_all(where, chosen, expected, tell)
        if election_runs.PART in parts and not options.scenario:
            elections = [name for name in ELECTIONS if options.only in name][options.start :: options.every]
            played += await election_runs.play_elections(where, elections, tell)
    for part in sorted(parts & OF_THEIR_OWN.keys()) if not options.scenario else ():
        played += await _play_alone(part, options)
    print(f"\n{table.text(played)}\n{len(played)} runs in {time.monotonic() - began:.0f} s")
    for words in (unproven := table.unproven(played)):
        print(f"WRONG: {words}")
    return int(bool(unproven) or any(not one.run.good for one in played))


async def _play_alone(part: str, options: argparse.Namespace) -> list[Played]:
    """Play the scenarios of a part one after the other."""
    scenarios, play = OF_THEIR_OWN[part]
    found = []
    for name in [name for name in scenarios if options.only in name][options.start :: options.every]:
        found.append(await play(name))
        tell(found[-1])
    return found


def main() -> None:
    """Run as a program."""
    # Workers log errors while their operator is down; these are expected.
    logging.getLogger("activity_worker").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="default: all")
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--only", default="", metavar="TEXT", help="faults that contain this text")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth run only (default: all)")
    parser.add_argument("--start", type=int, default=0, metavar="N", help="pass over the first N (default: none)")
    parser.add_argument("--lanes", type=int, default=LANES, help="control planes side by side (default: %(default)s)")
    sys.exit(asyncio.run(campaign(parser.parse_args())))


if __name__ == "__main__":
    main()
