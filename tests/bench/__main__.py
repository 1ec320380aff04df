"""`python -m tests.bench [NAME ...] [--list] [--markdown FILE]`: run benchmarks, print one table.

The exit code is 0 unless a benchmark could not run; a number that misses its goal is printed as `missed`.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.registry import BENCHMARKS, Benchmark, choose
from tests.bench.table import Row, Table
from tests.cluster.progress import say


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks that were asked for; return the exit code."""
    asked = _parser().parse_args(arguments)
    if asked.list:
        for benchmark in BENCHMARKS:
            print(f"{benchmark.name:<24}{benchmark.about}")
        return 0
    try:
        chosen = choose(asked.names)
    except KeyError as unknown:
        print(unknown.args[0], file=sys.stderr)
        return 2
    table, failed = Table(machine_line()), False
    for benchmark in chosen:
        rows, ran = _measure(benchmark)
        table.add(benchmark.name, rows)
        failed = failed or not ran
    print(f"\n{table.text()}", flush=True)
    if asked.markdown is not None:
        asked.markdown.write_text(table.markdown(), encoding="utf-8")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Run benchmarks and print one table.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which (default: all of --list)")
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there as Markdown too")
    return parser


def _measure(benchmark: Benchmark) -> tuple[list[Row], bool]:
    """Run one benchmark; return its rows, and whether it could run.

    An error in it does not stop the other benchmarks.
    """
    say(f"{benchmark.name}: {benchmark.about}")
    began = time.monotonic()
    try:
        rows = list(benchmark.load()())
    except Exception as error:
        traceback.print_exc()
        say(f"{benchmark.name}: could not run, after {time.monotonic() - began:.0f} s")
        return [Row(benchmark.name, "could not run", how=f"{type(error).__name__}: {error}")], False
    say(f"{benchmark.name}: done in {time.monotonic() - began:.0f} s")
    return rows, True


def machine_line() -> str:
    """Return the machine, Python, the day, and how busy the machine was before: readers need it to judge numbers."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    day = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    load = f"load {os.getloadavg()[0]:.1f} before" if hasattr(os, "getloadavg") else "load unknown"
    return f"{cores} cores ({_processor()}), {platform.system()}, Python {platform.python_version()}, {load}, {day}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


if __name__ == "__main__":
    sys.exit(main())
