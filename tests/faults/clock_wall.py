"""Wall clocks that a test sets for each replica, by libfaketime in the operator's process.

The machine's clock is not changed. Only the time of day is faked: CLOCK_MONOTONIC and CLOCK_BOOTTIME continue, as they
do when an administrator sets a machine's clock.
"""

from pathlib import Path

from tests import packages

#: The environment variable with the name of the process's clock file; only libfaketime reads it.
FILE = "FAKETIME_TIMESTAMP_FILE"
HOUR_SECONDS = 3600


def environment() -> dict[str, str]:
    """Return the environment variables for a process whose clock can be set.

    Without FAKETIME_FORCE_MONOTONIC_FIX=0 each thread that waits for Python's interpreter lock spins, because
    libfaketime takes the wait's monotonic deadline for a time of day: an operator at work then takes a core more.

    Raises MissingError without libfaketime.
    """
    library = packages.find("libfaketimeMT.so.1")
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        "FAKETIME_NO_CACHE": "1",
    }


def clock_file(log: Path) -> Path:
    """Return the clock file of the replica with this log."""
    return log.with_suffix(".clock")


def set_clock(log: Path, seconds: int) -> None:
    """Set the wall clock of the replica with this log ahead by `seconds`, or back if that is negative."""
    file = clock_file(log)
    whole = file.with_suffix(".new")
    whole.write_text(f"{seconds:+d}\n")
    whole.replace(file)
