"""PURE: the source of tasks in virtual time: tasks that wait, and open polls that wait for a task."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from activity_operator.simulate.timeline import Timeline


@dataclass(slots=True, eq=False)
class Task:
    """One task. `started` and `ended` are times in seconds, None before. `from_zero`: it met no worker."""

    arrived: float
    seconds: float
    started: float | None = None
    ended: float | None = None
    from_zero: bool = False


@dataclass(slots=True, eq=False)
class Poll:
    """One open poll: `receive` gets its task, but not before `not_before` (seconds).

    `index` is its place among the open polls, -1 if it has a task.
    """

    opened: float
    receive: "Callable[[Poll, Task], None]"
    not_before: float = 0.0
    index: int = -1


class TaskSource:
    """Hands each task to one open poll, chosen at random. `seconds` is the time from a poll to its task."""

    def __init__(self, timeline: Timeline, random_source: random.Random, seconds: float) -> None:
        self.waiting: deque[Task] = deque()
        #: Called after each change of the number of waiting tasks.
        self.on_waiting: Callable[[], None] = lambda: None
        self._timeline = timeline
        self._random = random_source
        self._seconds = seconds
        self._polls: list[Poll] = []

    def arrive(self, task: Task) -> None:
        """Take in a task: an open poll gets it, or it waits."""
        if self._polls:
            poll = self._polls[int(self._random.random() * len(self._polls))]
            self.close(poll)
            self._deliver(poll, task)
        else:
            self.waiting.append(task)
            self.on_waiting()

    def open(self, poll: Poll) -> None:
        """Open a poll: it gets the oldest waiting task, or stays open until one arrives."""
        if self.waiting:
            task = self.waiting.popleft()
            self._deliver(poll, task)
            self.on_waiting()
        else:
            poll.index = len(self._polls)
            self._polls.append(poll)

    def close(self, poll: Poll) -> bool:
        """Close an open poll; return False if it has a task."""
        if poll.index < 0:
            return False
        last = self._polls.pop()
        if last is not poll:
            self._polls[poll.index] = last
            last.index = poll.index
        poll.index = -1
        return True

    def _deliver(self, poll: Poll, task: Task) -> None:
        at = max(self._timeline.now + self._seconds, poll.not_before)
        self._timeline.at(at, lambda: poll.receive(poll, task))
