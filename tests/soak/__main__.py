"""`python -m tests.soak [--minutes 30] [--seed N]`: load and random faults, then everything is counted and judged."""

import argparse
import asyncio
import dataclasses
import gzip
import logging
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from activity_worker.contract import lease_id
from tests.faults import clock_wall
from tests.faults.fault_cluster import fault_cluster
from tests.faults.replicas import fork_server
from tests.servers.control_plane import audit_log
from tests.soak import memory_trace, table
from tests.soak.leaking_operators import LEAKS, VARIABLE
from tests.soak.soak import Soak, soak
from tests.soak.verdict import Findings, judge

MINUTES = 30.0


def tell(text: str) -> None:
    """Print a line with the time."""
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", flush=True)


async def run(options: argparse.Namespace, kept: Path) -> int:
    """Soak; return the exit code. Files for the diagnosis of a failure go into the folder `kept`."""
    _log_workers(kept / "workers.log")
    tell(f"soak of {options.minutes:g} minutes, --seed {options.seed}")
    # No call may leave this machine, whatever role or service a generated pool names.
    traced = {memory_trace.VARIABLE: str(kept)} if options.trace_memory else {}
    environment = {
        VARIABLE: options.leak,
        **traced,
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        **clock_wall.environment(),
    }
    async with (
        fault_cluster() as here,
        fork_server(here.folder, "tests.soak.leaking_operators", **environment) as operators,
    ):
        began = time.monotonic()
        async with soak(here, operators, options.minutes, options.seed, tell) as run:
            found = await run.play()
            if options.trace_memory:
                found = dataclasses.replace(found, growth=(), must_judge_growth=False)
            verdict = judge(found)
            _report(run, found)
            _keep(run, found, kept)
            for name in ("apiserver", "controllers"):
                shutil.copy(here.folder / f"{name}.log", kept)
            with (
                audit_log(here.folder).open("rb") as written,
                gzip.open(kept / "audit.jsonl.gz", "wb") as copied,
            ):
                shutil.copyfileobj(written, copied)
        print(f"\n{time.monotonic() - began:.0f} s, seed {options.seed}")
    for words in verdict.wrong:
        print(f"WRONG: {words}")
    return int(bool(verdict.wrong))


def _report(run: Soak, found: Findings) -> None:
    print(f"\n{table.text(judge(found).rows)}\n\n{table.growth(found.growth)}\n")
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(found.statuses.items()))
    print(f"executions: {statuses}; attempts: {len(found.attempts)}; handlers begun: {len(found.seen.begun)}")
    print(f"writes a minute at rest: {found.quiet_writes_a_minute:.1f} {dict(found.quiet_writes) or ''}")
    for replica in run.harness.replicas:
        print(f"{replica.name}: killed {replica.killed} times, ended by itself {replica.ended} times")


def _keep(run: Soak, found: Findings, kept: Path) -> None:
    """Write the timeline, and copy the operators' logs."""
    lines = [
        f"{_clock(one.at)} {one.strike} -> {one.victim}, over after "
        f"{one.over - one.at:.1f} s, converged {one.converged} {one.missing}"
        for one in run.struck
    ]
    lines += [f"{_clock(at)} WRONG: {words}" for at, words in found.interrupted]
    (kept / "faults.txt").write_text("\n".join(sorted(lines)) + "\n")
    stories = [f"{_clock(at)} {words}" for at, words in sorted(_stories(run))]
    (kept / "timed_out.txt").write_text("\n".join(stories) + "\n")
    samples = [",".join(map(str, (round(one.at - run.began), *dataclasses.astuple(one)[1:]))) for one in run.samples]
    head = "seconds,replica,pid,rss_kb,files,lag,queue,leads,ran,waited"
    (kept / "samples.csv").write_text("\n".join([head, *samples]) + "\n")
    for replica in run.harness.replicas:
        shutil.copy(replica.log, kept)


def _stories(run: Soak) -> Iterator[tuple[float, str]]:
    """Yield what is known of each task that timed out: (time, text)."""
    tasks = {lease_id(task.token): task for task in run.harness.fake.tasks if task.state == "timed_out"}
    for lease, task in tasks.items():
        yield task.started_at or 0.0, f"{lease[:8]} given to {task.worker_name}"
        yield task.heartbeat_at, f"{lease[:8]} last of {task.heartbeats} heartbeats"
        yield task.ended_at or 0.0, f"{lease[:8]} timed out"
    for begun in run.harness.seen.begun:
        if begun.lease in tasks:
            yield begun.at, f"{begun.lease[:8]} begun by {begun.holder}"
    for at, lease, words in run.harness.seen.records:
        if lease in tasks:
            yield at, f"{lease[:8]} {words}"
    for death in run.harness.node.deaths:
        yield death.at, f"{death.name} killed with {', '.join(lease[:8] for lease in death.held)}"


def _clock(monotonic: float) -> str:
    return f"{datetime.fromtimestamp(time.time() - time.monotonic() + monotonic, UTC):%H:%M:%S.%f}"


def _log_workers(path: Path) -> None:
    log = logging.getLogger("activity_worker")
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def _leak(text: str) -> str:
    kind, _, much = text.partition(":")
    if text and (kind not in LEAKS or not much.replace(".", "", 1).isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r}: use one of {', '.join(LEAKS)}, a colon and how much a minute")
    return text


def main() -> None:
    """Run as a program."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of load and faults (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=None, help="of faults and load (default: drawn, and printed)")
    parser.add_argument(
        "--leak", type=_leak, default="", metavar="KIND:MUCH",
        help="have the operators leak so much a minute, to see the judge find it: memory:MB, files:N or lag:MS",
    )  # fmt: skip
    parser.add_argument(
        "--trace-memory", action="store_true", help="write what each operator keeps to files, and judge no growth"
    )
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    kept = Path(tempfile.mkdtemp(prefix="ap-soak-"))
    code = asyncio.run(run(options, kept))
    if code or options.trace_memory:
        print(f"logs, faults and samples: {kept}")
    else:
        shutil.rmtree(kept)
    sys.exit(code)


if __name__ == "__main__":
    main()
