"""`python -m tests.coverage_report [SUITE ...]`: which lines and branches of both packages the suites run.

Runs the suites whose code runs in processes of this machine, then prints a table per package, and the lines of `core`,
`cluster`, `leases` and `reports` that nothing runs. Operators and workers in the local cluster are not measured.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.suites import catalogue

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "coverage"
PACKAGES = {"activity_operator": ROOT / "operator", "activity_worker": ROOT / "worker_image"}
#: Packages whose uncovered lines are listed: there a fault costs a task, or a worker that has one.
LISTED = tuple(f"activity_operator.{room}" for room in ("core", "cluster", "leases", "reports"))
#: Measured, a test takes about three times as long.
PATIENCE = ("--timeout=600",)
#: Suites in which no code of either package runs in a process of this machine.
LEFT_OUT = ("chart", "crd")
SUITES = {suite.name: suite.arguments for suite in catalogue.SUITES if not suite.cluster and suite.name not in LEFT_OUT}


@dataclass
class Room:
    """The sums of one package."""

    statements: int = 0
    missed: int = 0
    branches: int = 0
    partial: int = 0

    @property
    def percent(self) -> float:
        """How many of its statements and branches were run, in percent."""
        whole = self.statements + self.branches
        return 100.0 * (whole - self.missed - self.partial) / whole if whole else 100.0

    def add(self, counts: Mapping[str, int]) -> None:
        """Add a file's."""
        self.statements += counts["num_statements"]
        self.missed += counts["missing_lines"]
        self.branches += counts["num_branches"]
        self.partial += counts["missing_branches"]


def main() -> int:
    """Run the suites and print what they cover; 1 if one of them failed, which the numbers then suffer from."""
    unknown = sorted(set(sys.argv[1:]) - set(SUITES))
    if unknown:
        print(f"no such suite: {', '.join(unknown)}; there are {', '.join(SUITES)}")
        return 2
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    failed = [name for name in sys.argv[1:] or SUITES if _coverage("run", "-m", "pytest", *PATIENCE, *SUITES[name])]
    _coverage("combine", "--quiet")
    report = FOLDER / "coverage.json"
    _coverage("json", "--quiet", "-o", str(report))
    tell(json.loads(report.read_text(encoding="utf-8"))["files"])
    if failed:
        print(f"\nthe suites {', '.join(failed)} failed: what they cover is not all that they can")
    return 1 if failed else 0


def tell(files: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the table and the list; `files` are those of coverage.py's JSON report."""
    rooms: defaultdict[str, Room] = defaultdict(Room)
    for name, found in files.items():
        rooms[room_of(name)].add(found["summary"])
    print(f"\n{'package':<38}{'statements':>11}{'missed':>8}{'branches':>10}{'missed':>8}{'covered':>9}")
    for name, room in sorted(rooms.items()):
        print(
            f"{name:<38}{room.statements:>11}{room.missed:>8}{room.branches:>10}{room.partial:>8}{room.percent:>8.1f}%"
        )
    for name, found in sorted(files.items()):
        gaps = [*_ranges(found["missing_lines"]), *_jumps(found)]
        if room_of(name) in LISTED and gaps:
            print(f"{name}: {', '.join(gaps)}")


def room_of(name: str) -> str:
    """Return the package of a file, at most two names deep."""
    path = (ROOT / name).resolve()
    top = next(top for top, folder in PACKAGES.items() if path.is_relative_to(folder))
    inner = path.relative_to(PACKAGES[top] / top).parts
    return f"{top}.{inner[0]}" if len(inner) > 1 else top


def _jumps(found: Mapping[str, Any]) -> list[str]:
    """Return the branches that were never taken from a line that was run."""
    unrun = set(found["missing_lines"])
    ways = ((start, end) for start, end in found["missing_branches"] if start not in unrun and end not in unrun)
    return [f"{start}->{end if end > 0 else 'end'}" for start, end in ways]


def _ranges(lines: Iterable[int]) -> list[str]:
    """Join neighbours: "3-5"."""
    runs: list[list[int]] = []
    for line in sorted(lines):
        if runs and line == runs[-1][-1] + 1:
            runs[-1][1:] = [line]
        else:
            runs.append([line])
    return ["-".join(str(line) for line in run) for run in runs]


def _coverage(*arguments: str) -> int:
    print(f"\n==> coverage {' '.join(arguments)}", flush=True)
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "COVERAGE_FILE": str(FOLDER / "data"), "PYTHONPATH": paths}
    command = [sys.executable, "-m", "coverage", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
