"""The processor time of the whole machine, and the folder of a run's output."""

import os
import shutil
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Output files of the last runs, a folder for each; git ignores it.
OUTPUT = ROOT / "build" / "suites"
RUNS_KEPT = 5


def new_folder() -> Path:
    """Make and return the folder of a run that starts now; delete the oldest folders."""
    folder = OUTPUT / f"{datetime.now().astimezone():%Y-%m-%dT%H-%M-%S}-{os.getpid()}"
    folder.mkdir(parents=True)
    for old in sorted(OUTPUT.iterdir())[:-RUNS_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def cpu_seconds() -> float | None:
    """Return the processor time of all processes since the machine's start, None where /proc/stat has none."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return None
    user, nice, system, _idle, _iowait, irq, softirq = map(int, fields[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
