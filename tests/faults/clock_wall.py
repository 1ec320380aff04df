"""Wall clocks that a test sets, one for each replica: libfaketime in the operator's process, never the machine's clock.

Only the time of day is faked. What counts seconds (CLOCK_MONOTONIC, CLOCK_BOOTTIME) goes on as it is, as it does when
somebody sets a machine's clock.
"""

from pathlib import Path

from tests import packages

#: The variable that names a process's file; nothing reads it where the library is not loaded.
FILE = "FAKETIME_TIMESTAMP_FILE"
HOUR_SECONDS = 3600


def environment() -> dict[str, str]:
    """Return what a process needs so that its clock can be set. Raises MissingError without libfaketime."""
    library = packages.find("libfaketimeMT.so.1")
    return {"LD_PRELOAD": str(library), "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1"}


def clock_file(log: Path) -> Path:
    """Return the file that sets the clock of the replica with this log."""
    return log.with_suffix(".clock")


def set_clock(log: Path, seconds: int) -> None:
    """Put the wall clock of the replica with this log so far ahead (or, below zero, behind), from now on."""
    file = clock_file(log)
    whole = file.with_suffix(".new")
    whole.write_text(f"{seconds:+d}\n")
    whole.replace(file)
