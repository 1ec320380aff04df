"""Ctrl-C on a terminal: the first one begins the stop and says what it waits for, the second one ends at once."""

import logging
import os
from collections.abc import Callable, Sequence

from activity_worker.runtime.slot import Slot
from activity_worker.runtime.slot_pool import SlotPool

#: The exit code after the second Ctrl-C: what shells say of a process that SIGINT ended.
EXIT_INTERRUPTED = 130

log = logging.getLogger(__name__)


class TerminalInterrupts:
    """Receives SIGINT for a worker on a terminal."""

    def __init__(self, slots: SlotPool, stop: Callable[[], None], kill: Callable[[], None]) -> None:
        self._slots = slots
        self._stop = stop
        self._kill = kill
        self._received = False

    def receive(self) -> None:
        """Begin the stop; at the second call end this process with `EXIT_INTERRUPTED`.

        That gives up tasks and open polls: the service notices after the tasks' HeartbeatSeconds.
        """
        if not self._received:
            self._received = True
            self._stop()
            log.info("Ctrl-C again ends at once")
            return
        log.warning("ended at once: %s", describe_cost(*_load(self._slots.members)))
        self._kill()
        os._exit(EXIT_INTERRUPTED)


def describe_wait(slots: Sequence[Slot], drain_timeout_seconds: float) -> str:
    """Return what a stop waits for, and how long at most."""
    tasks, polls = _load(slots)
    return (
        f"{_count(polls, 'open poll', 'open polls')} (up to a minute) and "
        f"{_count(tasks, 'task', 'tasks')} (up to {drain_timeout_seconds:g} s)"
    )


def describe_cost(tasks: int, polls: int) -> str:
    """Return what an end at once costs: `tasks` that run, and those that open `polls` may bring."""
    parts = []
    if tasks:
        parts.append(_count(tasks, "running task", "running tasks"))
    if polls:
        parts.append(f"what {_count(polls, 'open poll brings', 'open polls bring')}")
    lost = " and ".join(parts)
    return f"no answer for {lost} until HeartbeatSeconds or TimeoutSeconds" if lost else "nothing was running"


def _load(slots: Sequence[Slot]) -> tuple[int, int]:
    """Return the numbers of tasks and of open polls."""
    return sum(slot.busy for slot in slots), sum(slot.poller.open for slot in slots)


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
