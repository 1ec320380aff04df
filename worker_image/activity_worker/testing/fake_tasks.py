"""Activities and their tasks, as the fake keeps them: queues, polls, tokens, clocks. No HTTP.

A task is `scheduled`, then `started` when a poll takes it, then exactly one of `succeeded`, `failed`, `timed_out` (its
heartbeat or its time ran out) and `aborted` (its execution was stopped). The clocks start when the task does, as the
service's do.
"""

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from activity_worker.testing.fake_clock import Clock, Timer
from activity_worker.testing.fake_queue import FakeQueue

_SHOWN = (
    "activity_arn", "state", "worker_name", "scheduled_at", "started_at", "ended_at",
    "heartbeats", "conclusions", "refused", "error",
)  # fmt: skip
OPEN = frozenset({"scheduled", "started"})


class FakeServiceError(Exception):
    """An error of the fake service: its code, its words and the HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status


@dataclass(slots=True, eq=False)
class FakeTask:
    """One task, and what became of it. `conclusions` counts accepted ones, `refused` the calls with a spent token."""

    token: str = field(repr=False)
    activity_arn: str
    input: str = field(repr=False)
    scheduled_at: float
    heartbeat_seconds: float | None = None
    timeout_seconds: float | None = None
    ended: "Callable[[FakeTask], None] | None" = field(default=None, repr=False)
    started: "Callable[[FakeTask], None] | None" = field(default=None, repr=False)
    state: str = "scheduled"
    worker_name: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    heartbeat_at: float = 0.0
    heartbeats: int = 0
    conclusions: int = 0
    refused: int = 0
    output: str = field(default="", repr=False)
    error: str = ""
    cause: str = field(default="", repr=False)
    timer: Timer | None = field(default=None, repr=False)

    def view(self) -> dict[str, Any]:
        """Return what an inspector may see, as JSON."""
        return {name: getattr(self, name) for name in _SHOWN}


@dataclass(slots=True)
class FakeActivity:
    """An activity, and its waiting tasks and open polls."""

    arn: str
    created_at: float
    queue: FakeQueue[FakeTask]


class FakeTasks:
    """All activities and tasks. `changed` is called after every change."""

    def __init__(self, clock: Clock, changed: Callable[[], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._salt = os.urandom(24).hex()
        self._numbers = itertools.count(1)
        self.activities: dict[str, FakeActivity] = {}
        self.tasks: dict[str, FakeTask] = {}
        self.counts: Counter[str] = Counter()

    def create_activity(self, arn: str) -> FakeActivity:
        """Return the activity, made now unless it exists."""
        queue = FakeQueue[FakeTask](self._clock, self._changed)
        return self.activities.setdefault(arn, FakeActivity(arn, self._clock.now(), queue))

    def activity(self, arn: str) -> FakeActivity:
        """Return the activity. Raises ActivityDoesNotExist."""
        found = self.activities.get(arn)
        if found is None:
            raise FakeServiceError("ActivityDoesNotExist", f"Activity Does Not Exist: '{arn}'")
        return found

    def delete_activity(self, arn: str) -> None:
        """Forget an activity; its open polls end empty. Deleting what is not there is fine."""
        found = self.activities.pop(arn, None)
        if found is not None:
            found.queue.release()

    def schedule(self, task_of: FakeActivity, task_input: str, **options: Any) -> FakeTask:
        """Add a task (options: FakeTask's fields) and hand it to the oldest open poll, if there is one."""
        token = f"{self._salt}.{next(self._numbers):08x}"
        task = FakeTask(token, task_of.arn, task_input, self._clock.now(), **options)
        self.tasks[token] = task
        self.counts["scheduled"] += 1
        task_of.queue.put(task)
        self._changed()
        return task

    async def take(self, activity: FakeActivity, worker_name: str, hold_seconds: float, limit: int) -> FakeTask | None:
        """Take a task, waiting up to `hold_seconds`. Raises ActivityWorkerLimitExceeded at `limit` open polls."""
        if activity.queue.open_polls >= limit:
            raise FakeServiceError("ActivityWorkerLimitExceeded", "Too many workers poll this activity")
        task = await activity.queue.take(hold_seconds)
        if task is None or task.state != "scheduled":
            self.counts["empty_polls"] += 1
            return None
        self._start(task, worker_name)
        return task

    def heartbeat(self, token: str) -> None:
        """Note a heartbeat. Raises InvalidToken, TaskDoesNotExist, TaskTimedOut."""
        task = self._running(token)
        task.heartbeat_at = self._clock.now()
        task.heartbeats += 1
        self.counts["heartbeats"] += 1
        self._changed()

    def succeed(self, token: str, output: str) -> None:
        """Conclude with an output. Raises InvalidOutput and what `heartbeat` raises."""
        task = self._running(token)
        try:
            json.loads(output)
        except ValueError:
            raise FakeServiceError("InvalidOutput", "Invalid Output: 'The output is not valid JSON'") from None
        task.output = output
        self._conclude(task, "succeeded")

    def fail(self, token: str, error: str, cause: str) -> None:
        """Conclude with a failure. Raises what `heartbeat` raises."""
        task = self._running(token)
        task.error, task.cause = error, cause
        self._conclude(task, "failed")

    def abort(self, task: FakeTask) -> None:
        """End a task because its execution was stopped."""
        if task.state in OPEN:
            if task.activity_arn in self.activities:
                self.activities[task.activity_arn].queue.remove(task)
            self._end(task, "aborted")

    def release_polls(self) -> None:
        """End every open poll empty."""
        for activity in self.activities.values():
            activity.queue.release()

    def _start(self, task: FakeTask, worker_name: str) -> None:
        task.state, task.worker_name = "started", worker_name
        task.started_at = task.heartbeat_at = self._clock.now()
        self.counts["started"] += 1
        if task.started is not None:
            task.started(task)
        self._watch(task)
        self._changed()

    def _watch(self, task: FakeTask) -> None:
        """Look again when the task's heartbeat or its time could have run out; end it if one has."""
        ends = [
            (start + seconds, error)
            for start, seconds, error in (
                (task.heartbeat_at, task.heartbeat_seconds, "States.HeartbeatTimeout"),
                (task.started_at or 0.0, task.timeout_seconds, "States.Timeout"),
            )
            if seconds is not None
        ]
        if not ends:
            return
        when, error = min(ends)
        if when > self._clock.now():
            task.timer = self._clock.call_at(when, lambda: self._watch(task))
        else:
            task.error = error
            self._end(task, "timed_out")

    def _running(self, token: str) -> FakeTask:
        """Return the started task of a token. Raises InvalidToken, TaskDoesNotExist, TaskTimedOut."""
        salt, _, number = token.partition(".")
        if len(salt) != len(self._salt) or len(number) != 8:
            raise FakeServiceError("InvalidToken", "Invalid Token: 'Invalid token'")
        task = self.tasks.get(token)
        if task is None:
            raise FakeServiceError("TaskDoesNotExist", "Task Does Not Exist: 'Provided task does not exist'")
        if task.state != "started":
            task.refused += 1
            self.counts["refused"] += 1
            raise FakeServiceError("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")
        return task

    def _conclude(self, task: FakeTask, state: str) -> None:
        task.conclusions += 1
        self._end(task, state)

    def _end(self, task: FakeTask, state: str) -> None:
        task.state, task.ended_at, task.input = state, self._clock.now(), ""
        self.counts[state] += 1
        if task.timer is not None:
            task.timer.cancel()
        if task.ended is not None:
            task.ended(task)
        self._changed()
