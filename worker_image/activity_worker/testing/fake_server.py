"""A Step Functions fake over HTTP that ships with the product.

It does what running activities needs and public emulators do not: `TaskTimedOut` for spent tokens, heartbeat and task
time-outs, the limit of open polls, throttling, wake on arrival, a settable poll hold, faults on demand, and a record of
what became of every task. In a test: `async with StepFunctionsFake() as fake:` and `fake.url`. As a process:
`python -m activity_worker.testing.stepfunctions --port 4566`, inspected at `/_fake/state` (see `fake_admin`).
"""

import ssl
from collections import Counter
from typing import Any

from activity_worker.testing.fake_clock import Clock
from activity_worker.testing.fake_executions import FakeExecutions
from activity_worker.testing.fake_faults import ACCESS_DENIED
from activity_worker.testing.fake_http import Answer, HttpFake, Parameters
from activity_worker.testing.fake_operations import FakeOperations, FakeSettings
from activity_worker.testing.fake_tasks import FakeTask, FakeTasks


class StepFunctionsFake(HttpFake):
    """The service, listening from `start` (or `async with`) to `close`.

    `host` and `port` say where (0: a free port), `clock` whose time it lives by, `tls` makes it HTTPS. `settings` may
    be changed while it runs. All methods belong to the loop it was started on.
    """

    prefix = "AWSStepFunctions."
    denied = ACCESS_DENIED

    def __init__(
        self,
        *,
        settings: FakeSettings | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(host=host, port=port, clock=clock, tls=tls)
        self.settings = settings or FakeSettings()

    @property
    def http_settings(self) -> FakeSettings:
        """The settings."""
        return self.settings

    def set_up(self) -> "Counter[str]":
        """Forget all tasks."""
        self._tasks = FakeTasks(self._clock, self._changed)
        self._executions = FakeExecutions(self._tasks, self._clock)
        self._operations = FakeOperations(self.settings, self._tasks, self._executions, self._clock)
        return self._tasks.counts

    def answer(self, operation: str, parameters: Parameters) -> Answer:
        """Answer an operation of Step Functions."""
        return self._operations.answer(operation, parameters)

    def release_polls(self) -> None:
        """End every open poll empty."""
        self._tasks.release_polls()

    def schedule_from(self, order: dict[str, Any]) -> int:
        """Add tasks: activityArn, and if wanted input, count, heartbeatSeconds, timeoutSeconds."""
        tasks = self.schedule(
            order["activityArn"],
            order.get("input", "{}"),
            count=int(order.get("count", 1)),
            heartbeat_seconds=order.get("heartbeatSeconds"),
            timeout_seconds=order.get("timeoutSeconds"),
        )
        return len(tasks)

    @property
    def counts(self) -> dict[str, int]:
        """Return totals since the start.

        Of tasks: scheduled, started, succeeded, failed, timed_out, aborted. Of calls: heartbeats, empty_polls, refused
        (a spent token), handed_to_nobody, and each operation as `call:GetActivityTask`.
        """
        return dict(self._tasks.counts)

    @property
    def tasks(self) -> list[FakeTask]:
        """Return every task ever scheduled, oldest first."""
        return list(self._tasks.tasks.values())

    def create_activity(self, name: str) -> str:
        """Make an activity and return its ARN."""
        return self._tasks.create_activity(self._operations.arn("activity", name)).arn

    def open_polls(self, activity_arn: str) -> int:
        """Return how many polls wait for a task of this activity."""
        return self._tasks.activity(activity_arn).queue.open_polls

    def queued(self, activity_arn: str) -> int:
        """Return how many tasks wait for a poll: the backlog that the real service does not tell."""
        return len(self._tasks.activity(activity_arn).queue.waiting)

    def schedule(
        self,
        activity_arn: str,
        task_input: str = "{}",
        *,
        count: int = 1,
        heartbeat_seconds: float | None = None,
        timeout_seconds: float | None = None,
    ) -> list[FakeTask]:
        """Add tasks with no execution around them, making the activity if need be."""
        activity = self._tasks.create_activity(activity_arn)
        return [
            self._tasks.schedule(
                activity, task_input, heartbeat_seconds=heartbeat_seconds, timeout_seconds=timeout_seconds
            )
            for _ in range(count)
        ]

    def state(self, *, with_tasks: bool = True) -> dict[str, Any]:
        """Return the oracle as JSON: activities, totals, faults that struck, executions by status, every task."""
        statuses = [execution.status for execution in self._executions.executions.values()]
        activities = {
            arn: {"queued": len(activity.queue.waiting), "open_polls": activity.queue.open_polls}
            for arn, activity in self._tasks.activities.items()
        }
        state: dict[str, Any] = {
            "now": self._clock.now(),
            "activities": activities,
            "counts": self.counts,
            "faults": dict(self.faults.seen),
            "executions": {status: statuses.count(status) for status in sorted(set(statuses))},
        }
        return state | ({"tasks": [task.view() for task in self._tasks.tasks.values()]} if with_tasks else {})
