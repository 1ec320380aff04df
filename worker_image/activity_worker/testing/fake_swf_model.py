"""Domains, workflow executions and their activity tasks, as the SWF fake keeps them. No HTTP.

An activity task is `scheduled`, then `started` when a poll takes it, then exactly one of `completed`, `failed`,
`canceled`, `timed_out`, and `closed` (its execution ended first). Each of its ends but the last is an event in its
execution's history, as are its beginning and its requests to cancel.
"""

import itertools
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from activity_worker.testing.fake_clock import Clock, Timer
from activity_worker.testing.fake_queue import FakeQueue
from activity_worker.testing.fake_tasks import FakeServiceError

UNKNOWN: Final = "UnknownResourceFault"
OPEN: Final = frozenset({"scheduled", "started"})
#: The events that end an activity task.
CLOSING_EVENTS: Final = frozenset(
    {"ActivityTaskCompleted", "ActivityTaskFailed", "ActivityTaskCanceled", "ActivityTaskTimedOut"}
)
_SHOWN = (
    "activity_id", "name", "version", "task_list", "state", "identity", "scheduled_at", "started_at", "ended_at",
    "heartbeats", "conclusions", "refused", "reason", "timeout_type", "cancel_requested",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FakeTimeouts:
    """The four time-outs of an activity task in seconds; None: no such time-out."""

    schedule_to_start_seconds: float | None = None
    schedule_to_close_seconds: float | None = None
    start_to_close_seconds: float | None = None
    heartbeat_seconds: float | None = None


@dataclass(slots=True, eq=False)
class FakeActivityTask:
    """One activity task, and what became of it.

    `conclusions` counts accepted ones, `refused` the calls with a spent token. `details` are those of the last
    heartbeat while it runs, and of its end afterwards.
    """

    token: str = field(repr=False)
    workflow: "FakeWorkflow" = field(repr=False)
    activity_id: str
    name: str
    version: str
    task_list: str
    input: str = field(repr=False)
    timeouts: FakeTimeouts
    scheduled_at: float
    scheduled_event: int = 0
    started_event: int = 0
    state: str = "scheduled"
    identity: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    heartbeat_at: float = 0.0
    heartbeats: int = 0
    conclusions: int = 0
    refused: int = 0
    cancel_requested: bool = False
    result: str = field(default="", repr=False)
    reason: str = ""
    details: str = field(default="", repr=False)
    timeout_type: str = ""
    timer: Timer | None = field(default=None, repr=False)

    def view(self) -> dict[str, Any]:
        """Return what an inspector may see, as JSON. `closing_events` are of this task alone."""
        shown = {name: getattr(self, name) for name in _SHOWN}
        workflow = {"workflow_id": self.workflow.workflow_id, "domain": self.workflow.domain.name}
        return shown | workflow | {"closing_events": self.closing_events()}

    def closing_events(self) -> list[str]:
        """Return the types of the events with which the history closes this task: one, if all is well."""
        return [
            event["eventType"]
            for event in self.workflow.history
            if event["eventType"] in CLOSING_EVENTS
            and event[attributes_of(event["eventType"])]["scheduledEventId"] == self.scheduled_event
        ]


@dataclass(slots=True, eq=False)
class FakeWorkflow:
    """One workflow execution. `decision_list` is where its decision tasks go; None: a test schedules its activities."""

    domain: "FakeDomain" = field(repr=False)
    workflow_id: str
    run_id: str
    name: str
    version: str
    started_at: float
    input: str = field(default="", repr=False)
    decision_list: str | None = None
    close_status: str = ""
    closed_at: float | None = None
    cancel_requested: bool = False
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)
    tasks: list[FakeActivityTask] = field(default_factory=list, repr=False)
    decision_token: str = field(default="", repr=False)
    decision_state: str = "none"
    decision_wanted: bool = False
    decision_event: int = 0
    decision_started_event: int = 0
    decided_event: int = 0


@dataclass(slots=True, eq=False)
class FakeDomain:
    """A domain: its types by (kind, name, version), its task lists, its executions by workflow id, the latest last."""

    name: str
    status: str = "REGISTERED"
    types: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    activity_lists: dict[str, FakeQueue[FakeActivityTask]] = field(default_factory=dict)
    decision_lists: dict[str, FakeQueue[FakeWorkflow]] = field(default_factory=dict)
    workflows: list[FakeWorkflow] = field(default_factory=list)


class FakeSwfModel:
    """All domains. `changed` is called after every change, `decide` when an execution needs a decision."""

    def __init__(self, clock: Clock, changed: Callable[[], None]) -> None:
        self.clock = clock
        self.changed = changed
        self.decide: Callable[[FakeWorkflow], None] = lambda _: None
        self.domains: dict[str, FakeDomain] = {}
        self.tasks: dict[str, FakeActivityTask] = {}
        self.counts: Counter[str] = Counter()
        self._salt = os.urandom(24).hex()
        self._numbers = itertools.count(1)

    def new_token(self) -> str:
        """Return a token that no task has."""
        return f"{self._salt}.{next(self._numbers):08x}"

    def domain(self, name: str) -> FakeDomain:
        """Return a domain. Raises UnknownResourceFault."""
        found = self.domains.get(name)
        if found is None:
            raise FakeServiceError(UNKNOWN, f"Unknown domain: {name}")
        return found

    def register_domain(self, name: str) -> FakeDomain:
        """Return the domain, made now unless it exists."""
        return self.domains.setdefault(name, FakeDomain(name))

    def activity_list(self, domain: FakeDomain, name: str) -> FakeQueue[FakeActivityTask]:
        """Return a list of activity tasks; a list exists by its use."""
        return domain.activity_lists.setdefault(name, FakeQueue(self.clock, self.changed))

    def start(self, domain: FakeDomain, workflow_id: str, name: str, version: str, **options: Any) -> FakeWorkflow:
        """Start a workflow execution (options: FakeWorkflow's fields)."""
        run_id = self.new_token().rpartition(".")[2] + "-run"
        workflow = FakeWorkflow(domain, workflow_id, run_id, name, version, self.clock.now(), **options)
        domain.workflows.append(workflow)
        self.counts["workflows"] += 1
        self.add_event(
            workflow,
            "WorkflowExecutionStarted",
            childPolicy="TERMINATE",
            taskList={"name": workflow.decision_list or ""},
            workflowType={"name": name, "version": version},
            **({"input": workflow.input} if workflow.input else {}),
        )
        self.decide(workflow)
        return workflow

    def workflow(self, domain: FakeDomain, workflow_id: str, run_id: str = "") -> FakeWorkflow:
        """Return the execution, the latest one without `run_id`. Raises UnknownResourceFault."""
        for workflow in reversed(domain.workflows):
            if workflow.workflow_id == workflow_id and run_id in {"", workflow.run_id}:
                return workflow
        raise FakeServiceError(UNKNOWN, f"Unknown execution: WorkflowExecution=[workflowId={workflow_id}]")

    def schedule(
        self,
        workflow: FakeWorkflow,
        activity_id: str,
        name: str,
        version: str,
        task_list: str,
        task_input: str,
        timeouts: FakeTimeouts,
        control: str = "",
    ) -> FakeActivityTask:
        """Schedule an activity task and give it to the oldest open poll, if there is one."""
        task = FakeActivityTask(
            self.new_token(), workflow, activity_id, name, version, task_list, task_input, timeouts, self.clock.now()
        )
        task.scheduled_event = self.add_event(
            workflow,
            "ActivityTaskScheduled",
            activityId=activity_id,
            activityType={"name": name, "version": version},
            taskList={"name": task_list},
            decisionTaskCompletedEventId=workflow.decided_event,
            **({"input": task_input} if task_input else {}),
            **({"control": control} if control else {}),
        )
        workflow.tasks.append(task)
        self.tasks[task.token] = task
        self.counts["scheduled"] += 1
        self._watch(task)
        self.activity_list(workflow.domain, task_list).put(task)
        self.changed()
        return task

    def begin(self, task: FakeActivityTask, identity: str) -> None:
        """Start a task that a poll has taken."""
        task.state, task.identity = "started", identity
        task.started_at = task.heartbeat_at = self.clock.now()
        task.started_event = self.add_event(
            task.workflow,
            "ActivityTaskStarted",
            scheduledEventId=task.scheduled_event,
            **({"identity": identity} if identity else {}),
        )
        self.counts["started"] += 1
        self._watch(task)
        self.changed()

    def heartbeat(self, token: str, details: str) -> bool:
        """Note a heartbeat; return whether the task's cancellation is requested. Raises as `running` does."""
        task = self.running(token)
        task.heartbeat_at = self.clock.now()
        task.heartbeats += 1
        task.details = details
        self.counts["heartbeats"] += 1
        self.changed()
        return task.cancel_requested

    def complete(self, token: str, result: str) -> None:
        """Conclude with a result. Raises as `running` does."""
        task = self.running(token)
        task.result = result
        self._conclude(task, "completed", **({"result": result} if result else {}))

    def fail(self, token: str, reason: str, details: str) -> None:
        """Conclude with a failure. Raises as `running` does."""
        task = self.running(token)
        task.reason, task.details = reason, details
        said = {"reason": reason, "details": details}
        self._conclude(task, "failed", **{name: text for name, text in said.items() if text})

    def cancel(self, token: str, details: str) -> None:
        """Conclude as cancelled; OperationNotPermittedFault without a request. Raises as `running` does, too."""
        task = self.running(token)
        if not task.cancel_requested:
            # The service's documents forbid the call. They do not say how it is refused.
            raise FakeServiceError("OperationNotPermittedFault", "the cancellation of the task was not requested")
        task.details = details
        self._conclude(task, "canceled", **({"details": details} if details else {}))

    def request_cancel(self, task: FakeActivityTask) -> None:
        """Ask for a task's cancellation; a task that no worker has is cancelled at once."""
        self.add_event(
            task.workflow,
            "ActivityTaskCancelRequested",
            activityId=task.activity_id,
            decisionTaskCompletedEventId=task.workflow.decided_event,
        )
        task.cancel_requested = True
        if task.state == "scheduled":
            self._close_task(task, "canceled")
        self.changed()

    def close(self, workflow: FakeWorkflow, status: str, event: str, **attributes: Any) -> None:
        """End an execution: its open tasks are spent."""
        if workflow.close_status:
            raise FakeServiceError(UNKNOWN, f"Unknown execution: WorkflowExecution=[workflowId={workflow.workflow_id}]")
        workflow.close_status, workflow.closed_at = status, self.clock.now()
        self.add_event(workflow, event, **attributes)
        for task in workflow.tasks:
            if task.state in OPEN:
                self._end(task, "closed")
        self.changed()

    def running(self, token: str) -> FakeActivityTask:
        """Return the started task of a token. Raises ValidationException and UnknownResourceFault."""
        salt, _, number = token.partition(".")
        if len(salt) != len(self._salt) or len(number) != 8:
            raise FakeServiceError("ValidationException", "Invalid token")
        task = self.tasks.get(token)
        if task is None or task.state != "started":
            if task is not None:
                task.refused += 1
            self.counts["refused"] += 1
            event = task.scheduled_event if task else 0
            raise FakeServiceError(UNKNOWN, f"Unknown activity, scheduledEventId = {event}")
        return task

    def release_polls(self) -> None:
        """End every open poll empty."""
        for domain in self.domains.values():
            for activities in domain.activity_lists.values():
                activities.release()
            for decisions in domain.decision_lists.values():
                decisions.release()

    def add_event(self, workflow: FakeWorkflow, kind: str, **attributes: Any) -> int:
        """Add an event to an execution's history; return its id."""
        number = len(workflow.history) + 1
        workflow.history.append(
            {
                "eventId": number,
                "eventType": kind,
                "eventTimestamp": self.clock.now(),
                attributes_of(kind): attributes,
            }
        )
        return number

    def _watch(self, task: FakeActivityTask) -> None:
        """Look again when one of the task's time-outs could have passed; end it if one has."""
        if task.timer is not None:
            task.timer.cancel()
        ends = list(_deadlines(task))
        if not ends:
            return
        when, kind = min(ends)
        if when > self.clock.now():
            task.timer = self.clock.call_at(when, lambda: self._watch(task))
        else:
            task.timeout_type = kind
            details: Mapping[str, str] = {"details": task.details} if task.details else {}
            self._close_task(task, "timed_out", timeoutType=kind, **details)

    def _conclude(self, task: FakeActivityTask, state: str, **attributes: Any) -> None:
        task.conclusions += 1
        self._close_task(task, state, **attributes)

    def _close_task(self, task: FakeActivityTask, state: str, **attributes: Any) -> None:
        kind = "ActivityTask" + "".join(part.capitalize() for part in state.split("_"))
        events = {"scheduledEventId": task.scheduled_event, "startedEventId": task.started_event}
        self.add_event(task.workflow, kind, **(attributes | events))
        self._end(task, state)
        self.decide(task.workflow)
        self.changed()

    def _end(self, task: FakeActivityTask, state: str) -> None:
        if task.state == "scheduled":
            self.activity_list(task.workflow.domain, task.task_list).remove(task)
        task.state, task.ended_at, task.input = state, self.clock.now(), ""
        self.counts[state] += 1
        if task.timer is not None:
            task.timer.cancel()


def attributes_of(kind: str) -> str:
    """Return the field that holds the attributes of an event of a type."""
    return f"{kind[0].lower()}{kind[1:]}EventAttributes"


def _deadlines(task: FakeActivityTask) -> "list[tuple[float, str]]":
    limits = task.timeouts
    if task.state == "scheduled":
        clocks = [
            (task.scheduled_at, limits.schedule_to_start_seconds, "SCHEDULE_TO_START"),
            (task.scheduled_at, limits.schedule_to_close_seconds, "SCHEDULE_TO_CLOSE"),
        ]
    else:
        started = task.started_at or 0.0
        clocks = [
            (task.heartbeat_at, limits.heartbeat_seconds, "HEARTBEAT"),
            (started, limits.start_to_close_seconds, "START_TO_CLOSE"),
            (task.scheduled_at, limits.schedule_to_close_seconds, "SCHEDULE_TO_CLOSE"),
        ]
    return [(start + seconds, kind) for start, seconds, kind in clocks if seconds is not None]
