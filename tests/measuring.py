"""Coverage of the processes that tests start; `tests.coverage_report` turns it on, and no other run is touched.

This is a plugin of coverage.py only to have code run wherever it starts. A process that is killed writes nothing at
its end: each saves what it has run, every fifth of a second of its CPU time. What it ran after the last is lost.
"""

import atexit
import os
import signal
from collections.abc import Mapping
from contextlib import suppress

from coverage import Coverage
from coverage.plugin_support import Plugins

SAVE_CPU_SECONDS = 0.2
_armed = False


def environment() -> dict[str, str]:
    """Return the variables that a process with an otherwise empty environment needs to be measured."""
    return {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}


def save_regularly() -> None:
    """Save while this process runs. Called in the main thread; a process that was forked calls it again."""
    if Coverage.current() is not None:
        _arm()


def coverage_init(registry: Plugins, options: Mapping[str, object]) -> None:
    """Begin as coverage.py does, which calls this.

    In a fork it does so again, and is left alone: before an exec the timer would outlive the handler, and kill.
    """
    if not _armed:
        _arm()


def _arm() -> None:
    global _armed  # noqa: PLW0603 - one timer a process
    _armed = True
    signal.signal(signal.SIGVTALRM, _save)
    signal.setitimer(signal.ITIMER_VIRTUAL, SAVE_CPU_SECONDS, SAVE_CPU_SECONDS)
    # Python gives signals back as it ends, and the default of this one is to kill.
    atexit.register(signal.setitimer, signal.ITIMER_VIRTUAL, 0.0)


def _save(number: int, frame: object) -> None:
    measured = Coverage.current()
    collector = None if measured is None else measured._collector
    if measured is None or collector is None:
        return
    if collector.data_lock is not None and collector.data_lock.locked():
        # This interrupts coverage.py as it holds its own lock: a save would wait for it for ever.
        return
    # What is being measured goes on, whatever becomes of the data.
    with suppress(Exception):
        measured.save()
