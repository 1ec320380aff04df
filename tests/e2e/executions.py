"""Executions of a test's state machine; their histories are the task service's own account of each task."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

from botocore.exceptions import ConnectionError as NotConnectedError
from botocore.exceptions import HTTPClientError

#: Errors of an emulator on a machine that stalls, after which the call is repeated.
UNANSWERED = (NotConnectedError, HTTPClientError)
ENDINGS = {"ActivitySucceeded": "succeeded", "ActivityFailed": "failed", "ActivityTimedOut": "timed out"}


@dataclass(frozen=True)
class Attempt:
    """One attempt at a task.

    `worker` is the name of the worker that polled it ("" for none), `ending` is how it ended ("" while it runs).
    `error` is the error name of a failure or a time-out, `cause` its text. `began` is when it was handed out, `ended`
    when it ended, in Unix seconds by the service's clock; infinite before that.
    """

    worker: str
    ending: str
    error: str = ""
    cause: str = ""
    began: float = math.inf
    ended: float = math.inf

    def runs_at(self, at: float) -> bool:
        """Whether a worker had it at a time, in Unix seconds."""
        return self.began <= at < self.ended

    @property
    def interrupted(self) -> bool:
        """Whether a worker began it and then fell silent, or abandoned it because it was stopped."""
        silent = self.ending == "timed out" and self.worker != ""
        return silent or self.error.startswith("ActivityPool.")


@dataclass(frozen=True)
class Executions:
    """The executions of one state machine, whose only state is a task of one activity."""

    states: Any
    activity: str
    machine: str
    before_start: Callable[[], None] = lambda: None

    def start(self, count: int = 1, **work: Any) -> list[str]:
        """Start `count` executions with this input and their number `n`; return their ARNs."""
        self.before_start()
        first = len(self.arns())
        return [
            self.states.start_execution(stateMachineArn=self.machine, input=json.dumps({"n": n, **work}))[
                "executionArn"
            ]
            for n in range(first, first + count)
        ]

    def arns(self) -> list[str]:
        """Return the ARN of every execution ever started."""
        return [found["executionArn"] for found in self._listed()]

    def statuses(self) -> list[str]:
        """Return the status of every execution ever started."""
        return [found["status"] for found in self._listed()]

    def all_succeeded(self) -> bool:
        """Whether there are executions, and each has succeeded."""
        return set(self.statuses()) == {"SUCCEEDED"}

    def attempts(self, execution: str | None = None) -> list[Attempt]:
        """Return the attempts of one execution, or of all, each execution's in order."""
        arns = [execution] if execution is not None else self.arns()
        return [attempt for arn in arns for attempt in _attempts(self._history(arn))]

    def output(self, execution: str) -> dict[str, Any]:
        """Return the handler's output, empty while the execution runs."""
        described = self.states.describe_execution(executionArn=execution)
        return cast("dict[str, Any]", json.loads(described.get("output") or "{}"))

    def running_at(self, at: float) -> int:
        """Count the tasks that a worker ran, or for which the operator held a lease, at a time in Unix seconds."""
        return sum(attempt.runs_at(at) for attempt in self.attempts())

    def interrupted(self) -> list[Attempt]:
        """Return the attempts that a worker began and did not conclude."""
        return [attempt for attempt in self.attempts() if attempt.interrupted]

    def _listed(self) -> Iterator[dict[str, Any]]:
        pages = self.states.get_paginator("list_executions").paginate(stateMachineArn=self.machine)
        return (found for page in pages for found in page["executions"])

    def _history(self, execution: str) -> Iterator[dict[str, Any]]:
        pages = self.states.get_paginator("get_execution_history").paginate(executionArn=execution)
        return (event for page in pages for event in page["events"])


def most_at_once(attempts: Iterable[Attempt]) -> int:
    """Return the largest number of these attempts that ran at the same time."""
    handed_out = [attempt for attempt in attempts if attempt.began < math.inf]
    return max((sum(other.runs_at(one.began) for other in handed_out) for one in handed_out), default=0)


def _attempts(history: Iterator[dict[str, Any]]) -> list[Attempt]:
    found: list[Attempt] = []
    for event in history:
        kind, at = event["type"], event["timestamp"].timestamp()
        if kind == "ActivityScheduled":
            found.append(Attempt("", ""))
        elif kind == "ActivityStarted":
            worker = event["activityStartedEventDetails"].get("workerName", "?")
            found[-1] = Attempt(worker, "", began=at)
        elif kind in ENDINGS:
            details = event.get(kind[0].lower() + kind[1:] + "EventDetails", {})
            error, cause = details.get("error", ""), details.get("cause", "")
            found[-1] = replace(found[-1], ending=ENDINGS[kind], error=error, cause=cause, ended=at)
    return found
