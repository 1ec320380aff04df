"""Executions of a test's state machine, and the oracle: what the task service itself says became of each task."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

ENDINGS = {"ActivitySucceeded": "succeeded", "ActivityFailed": "failed", "ActivityTimedOut": "timed out"}


@dataclass(frozen=True)
class Attempt:
    """One handing-out of a task: to whom ("" when nobody took it), and how it ended ("" while it runs).

    `error` is the error name of a failure or a time-out, `cause` what goes with it.
    """

    worker: str
    ending: str
    error: str = ""
    cause: str = ""

    @property
    def interrupted(self) -> bool:
        """Whether a worker began it and then went silent, or gave it up because it was stopped."""
        silent = self.ending == "timed out" and self.worker != ""
        return silent or self.error.startswith("ActivityPool.")


@dataclass(frozen=True)
class Executions:
    """The executions of one state machine, whose only state is a task of one activity."""

    states: Any
    activity: str
    machine: str

    def start(self, count: int = 1, **work: Any) -> list[str]:
        """Start some with this input and their number `n`; returns their ARNs."""
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
        """Return what the handler gave back, empty while the execution runs."""
        described = self.states.describe_execution(executionArn=execution)
        return cast("dict[str, Any]", json.loads(described.get("output") or "{}"))

    def running(self) -> int:
        """Count the tasks that are with a worker, or leased for one, now."""
        return sum(1 for attempt in self.attempts() if attempt.worker and not attempt.ending)

    def interrupted(self) -> list[Attempt]:
        """Return the attempts that a worker began and did not conclude."""
        return [attempt for attempt in self.attempts() if attempt.interrupted]

    def _listed(self) -> Iterator[dict[str, Any]]:
        pages = self.states.get_paginator("list_executions").paginate(stateMachineArn=self.machine)
        return (found for page in pages for found in page["executions"])

    def _history(self, execution: str) -> Iterator[dict[str, Any]]:
        pages = self.states.get_paginator("get_execution_history").paginate(executionArn=execution)
        return (event for page in pages for event in page["events"])


def _attempts(history: Iterator[dict[str, Any]]) -> list[Attempt]:
    found: list[Attempt] = []
    for event in history:
        kind = event["type"]
        if kind == "ActivityScheduled":
            found.append(Attempt("", ""))
        elif kind == "ActivityStarted":
            found[-1] = Attempt(event["activityStartedEventDetails"].get("workerName", "?"), "")
        elif kind in ENDINGS:
            details = event.get(kind[0].lower() + kind[1:] + "EventDetails", {})
            found[-1] = Attempt(found[-1].worker, ENDINGS[kind], details.get("error", ""), details.get("cause", ""))
    return found
