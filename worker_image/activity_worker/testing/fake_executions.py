"""State machines and executions, as the fake runs them: one Task state over an activity, with its time-outs and Retry.

That is what a demo or a test needs to see tasks come back after a lost worker. Anything more is refused when the state
machine is created; emulators run the rest of the language.
"""

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from activity_worker.testing.fake_clock import Clock
from activity_worker.testing.fake_tasks import FakeServiceError, FakeTask, FakeTasks

_TIMEOUTS = frozenset({"States.Timeout", "States.HeartbeatTimeout"})
_STATE_FIELDS = frozenset({"Type", "Resource", "End", "Comment", "HeartbeatSeconds", "TimeoutSeconds", "Retry"})
_EVENT_OF = {"succeeded": "ActivitySucceeded", "failed": "ActivityFailed", "timed_out": "ActivityTimedOut"}


@dataclass(frozen=True, slots=True)
class FakeStateMachine:
    """A checked definition."""

    arn: str
    name: str
    state_name: str
    state: dict[str, Any]
    role_arn: str
    created_at: float


@dataclass(slots=True, eq=False)
class FakeExecution:
    """One execution, its history and how often each retrier has been used."""

    arn: str
    name: str
    machine: FakeStateMachine
    input: str = field(repr=False)
    started_at: float
    status: str = "RUNNING"
    stopped_at: float | None = None
    output: str | None = field(default=None, repr=False)
    error: str | None = None
    cause: str | None = field(default=None, repr=False)
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)
    retries: dict[int, int] = field(default_factory=dict)
    task: FakeTask | None = None


class FakeExecutions:
    """All state machines and executions, over the tasks of `tasks`."""

    def __init__(self, tasks: FakeTasks, clock: Clock) -> None:
        self._tasks = tasks
        self._clock = clock
        self.machines: dict[str, FakeStateMachine] = {}
        self.executions: dict[str, FakeExecution] = {}

    def create_machine(self, arn: str, name: str, definition: str, role_arn: str = "") -> FakeStateMachine:
        """Return the state machine, made now unless it exists with this definition. Raises InvalidDefinition."""
        state_name, state = _single_task(definition)
        known = self.machines.get(arn)
        if known is not None and (known.state_name, known.state) != (state_name, state):
            raise FakeServiceError("StateMachineAlreadyExists", f"State Machine Already Exists: '{arn}'")
        machine = FakeStateMachine(arn, name, state_name, state, role_arn, self._clock.now())
        return self.machines.setdefault(arn, machine)

    def delete_machine(self, arn: str) -> None:
        """Delete a state machine; its executions go on, and an ARN that does not exist is no error."""
        self.machines.pop(arn, None)

    def start(self, machine_arn: str, name: str, execution_input: str) -> FakeExecution:
        """Start an execution; the same name with the same input, while it runs, is the same execution."""
        machine = self.machine(machine_arn)
        name = name or str(uuid.uuid4())
        arn = f"{machine_arn.replace(':stateMachine:', ':execution:')}:{name}"
        known = self.executions.get(arn)
        if known is not None:
            if known.status == "RUNNING" and known.input == execution_input:
                return known
            raise FakeServiceError("ExecutionAlreadyExists", f"Execution Already Exists: '{arn}'")
        execution = FakeExecution(arn, name, machine, execution_input, self._clock.now())
        self.executions[arn] = execution
        self._note(execution, "ExecutionStarted")
        self._note(execution, "TaskStateEntered", stateEnteredEventDetails={"name": machine.state_name})
        self._attempt(execution)
        return execution

    def machine(self, arn: str) -> FakeStateMachine:
        """Return a state machine. Raises StateMachineDoesNotExist."""
        if arn not in self.machines:
            raise FakeServiceError("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{arn}'")
        return self.machines[arn]

    def execution(self, arn: str) -> FakeExecution:
        """Return an execution. Raises ExecutionDoesNotExist."""
        if arn not in self.executions:
            raise FakeServiceError("ExecutionDoesNotExist", f"Execution Does Not Exist: '{arn}'")
        return self.executions[arn]

    def stop(self, arn: str, error: str | None, cause: str | None) -> FakeExecution:
        """Abort an execution and spend its task's token. A finished execution stays as it is."""
        execution = self.execution(arn)
        if execution.status == "RUNNING":
            self._end(execution, "ABORTED", error, cause)
            if execution.task is not None:
                self._tasks.abort(execution.task)
        return execution

    def _attempt(self, execution: FakeExecution) -> None:
        if execution.status != "RUNNING":
            return
        state = execution.machine.state
        activity = self._tasks.activities.get(state["Resource"])
        if activity is None:
            self._end(execution, "FAILED", "States.Runtime", f"Activity Does Not Exist: '{state['Resource']}'")
            return
        self._note(execution, "ActivityScheduled", activityScheduledEventDetails={"resource": activity.arn})
        execution.task = self._tasks.schedule(
            activity,
            execution.input,
            heartbeat_seconds=state.get("HeartbeatSeconds"),
            timeout_seconds=state.get("TimeoutSeconds"),
            started=lambda task: self._note(
                execution, "ActivityStarted", activityStartedEventDetails={"workerName": task.worker_name}
            ),
            ended=lambda task: self._attempted(execution, task),
        )

    def _attempted(self, execution: FakeExecution, task: FakeTask) -> None:
        """Go on after a task ended: finish, or try again as Retry says."""
        if execution.status != "RUNNING":
            return
        event = _EVENT_OF[task.state]
        details = {"output": task.output} if task.state == "succeeded" else {"error": task.error, "cause": task.cause}
        self._note(execution, event, **{f"{event[0].lower()}{event[1:]}EventDetails": details})
        if task.state == "succeeded":
            execution.output = task.output
            self._note(execution, "TaskStateExited", stateExitedEventDetails={"name": execution.machine.state_name})
            self._end(execution, "SUCCEEDED")
            return
        wait = self._retry_after(execution, task.error)
        if wait is None:
            self._end(execution, "FAILED", task.error or None, task.cause or None)
        else:
            self._clock.call_at(self._clock.now() + wait, lambda: self._attempt(execution))

    def _retry_after(self, execution: FakeExecution, error: str) -> float | None:
        """Return the seconds to the next attempt by the first retrier that names the error, None if it is used up."""
        for index, retrier in enumerate(execution.machine.state.get("Retry", [])):
            if any(_matches(name, error) for name in retrier["ErrorEquals"]):
                used = execution.retries.get(index, 0)
                if used >= retrier.get("MaxAttempts", 3):
                    return None
                execution.retries[index] = used + 1
                wait = float(retrier.get("IntervalSeconds", 1)) * float(retrier.get("BackoffRate", 2.0)) ** used
                return min(wait, float(retrier.get("MaxDelaySeconds", wait)))
        return None

    def _end(self, execution: FakeExecution, status: str, error: str | None = None, cause: str | None = None) -> None:
        execution.status, execution.stopped_at = status, self._clock.now()
        execution.error, execution.cause = error, cause
        self._note(execution, f"Execution{status.capitalize()}")

    def _note(self, execution: FakeExecution, kind: str, **details: Any) -> None:
        number = len(execution.history) + 1
        execution.history.append(
            {"timestamp": self._clock.now(), "type": kind, "id": number, "previousEventId": number - 1} | details
        )


def _matches(name: str, error: str) -> bool:
    if name == "States.TaskFailed":
        return error not in _TIMEOUTS
    return name in {"States.ALL", error} or (name == "States.Timeout" and error in _TIMEOUTS)


def _single_task(definition: str) -> tuple[str, dict[str, Any]]:
    """Return name and body of the one Task state. Raises InvalidDefinition for anything this fake cannot run."""
    try:
        machine = json.loads(definition)
        ((name, state),) = machine["States"].items()
        known = machine["StartAt"] == name and state["Type"] == "Task" and ":activity:" in state["Resource"]
        extra = set(state) - _STATE_FIELDS
    except (ValueError, KeyError, TypeError, AttributeError):
        known, extra = False, set()
    if not known or extra or not state.get("End"):
        said = f"; it does not know {', '.join(sorted(extra))}" if extra else ""
        raise FakeServiceError(
            "InvalidDefinition",
            f"Invalid State Machine Definition: this fake runs one Task state over an activity with End: true{said}",
        )
    return name, state
