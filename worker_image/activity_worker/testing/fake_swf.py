"""An Amazon SWF fake over HTTP that ships with the product.

It does what activity workers need and public emulators do not: requests to cancel, RespondActivityTaskCanceled, all
four time-outs, `UnknownResourceFault` for late answers, truncated counts, throttling, wake on arrival, a settable poll
hold, and faults on demand. Each execution keeps its history of events. A test schedules activities itself (`schedule`),
or a decider does so over the service's own API, as boto3 speaks it. In a test: `async with SwfFake() as fake:` and
`fake.url`. As a process: `python -m activity_worker.testing.swf --port 4566`, inspected at `/_fake/state`.
"""

import itertools
import ssl
from collections import Counter
from collections.abc import Iterable
from typing import Any

from activity_worker.testing.fake_clock import Clock
from activity_worker.testing.fake_http import Answer, HttpFake, Parameters
from activity_worker.testing.fake_swf_decisions import FakeDecisions
from activity_worker.testing.fake_swf_model import FakeActivityTask, FakeSwfModel, FakeTimeouts, FakeWorkflow
from activity_worker.testing.fake_swf_operations import SwfFakeSettings, SwfOperations

#: The time-outs in an order to schedule, by their names in JSON.
_SECONDS = {
    "scheduleToStartSeconds": "schedule_to_start_seconds",
    "scheduleToCloseSeconds": "schedule_to_close_seconds",
    "startToCloseSeconds": "start_to_close_seconds",
    "heartbeatSeconds": "heartbeat_seconds",
}


class SwfFake(HttpFake):
    """The service, listening from `start` (or `async with`) to `close`.

    `domains` exist from the start. `host` and `port` say where (0: a free port), `clock` whose time it lives by, `tls`
    makes it HTTPS. `settings` may be changed while it runs. All methods belong to the loop it was started on.
    """

    prefix = "SimpleWorkflowService."
    denied = ("OperationNotPermittedFault", "User is not authorized to perform this action", 400)

    def __init__(
        self,
        *,
        settings: SwfFakeSettings | None = None,
        domains: Iterable[str] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(host=host, port=port, clock=clock, tls=tls)
        self.settings = settings or SwfFakeSettings()
        self._first_domains = tuple(domains)
        self._numbers = itertools.count(1)

    @property
    def http_settings(self) -> SwfFakeSettings:
        """The settings."""
        return self.settings

    def set_up(self) -> "Counter[str]":
        """Forget all domains but the first ones, which are empty."""
        self._model = FakeSwfModel(self._clock, self._changed)
        for name in self._first_domains:
            self.register_domain(name)
        decisions = FakeDecisions(self._model)
        self._operations = SwfOperations(self.settings, self._model, decisions, self._clock)
        return self._model.counts

    def answer(self, operation: str, parameters: Parameters) -> Answer:
        """Answer an operation of SWF."""
        return self._operations.answer(operation, parameters)

    def release_polls(self) -> None:
        """End every open poll empty."""
        self._model.release_polls()

    @property
    def counts(self) -> dict[str, int]:
        """Return totals since the start.

        Of activity tasks: scheduled, started, completed, failed, canceled, timed_out, closed. Of workflows: workflows.
        Of calls: heartbeats, empty_polls, refused (a spent token), handed_to_nobody, and each operation as
        `call:PollForActivityTask`.
        """
        return dict(self._model.counts)

    @property
    def tasks(self) -> list[FakeActivityTask]:
        """Return every activity task ever scheduled, oldest first."""
        return list(self._model.tasks.values())

    def register_domain(self, name: str) -> None:
        """Make a domain, unless it exists."""
        self._model.register_domain(name)

    def open_polls(self, domain: str, task_list: str) -> int:
        """Return how many polls wait for an activity task of this list."""
        return self._model.activity_list(self._model.domain(domain), task_list).open_polls

    def queued(self, domain: str, task_list: str) -> int:
        """Return how many activity tasks wait for a poll."""
        return len(self._model.activity_list(self._model.domain(domain), task_list).waiting)

    def start_workflow(self, domain: str, workflow_id: str = "") -> FakeWorkflow:
        """Start an execution whose activities the test schedules, making the domain if need be."""
        workflow_id = workflow_id or f"workflow-{next(self._numbers)}"
        return self._model.start(self._model.register_domain(domain), workflow_id, "test", "1")

    def schedule(
        self,
        domain: str,
        task_list: str,
        task_input: str = "",
        *,
        name: str = "work",
        version: str = "1",
        count: int = 1,
        timeouts: FakeTimeouts | None = None,
        workflow: FakeWorkflow | None = None,
    ) -> list[FakeActivityTask]:
        """Schedule activity tasks, each in a workflow of its own if `workflow` is None. Types need no registration."""
        return [
            self._model.schedule(
                workflow or self.start_workflow(domain),
                f"activity-{next(self._numbers)}",
                name,
                version,
                task_list,
                task_input,
                timeouts or FakeTimeouts(),
            )
            for _ in range(count)
        ]

    def request_cancel(self, task: FakeActivityTask) -> None:
        """Ask for the cancellation of a task, as its decider would."""
        self._model.request_cancel(task)

    def terminate(self, workflow: FakeWorkflow) -> None:
        """End an execution; the tokens of its open tasks are spent."""
        self._model.close(workflow, "TERMINATED", "WorkflowExecutionTerminated", childPolicy="TERMINATE")

    def schedule_from(self, order: dict[str, Any]) -> int:
        """Add tasks: domain, taskList, and if wanted input, name, version, count and the four time-outs in seconds.

        These are scheduleToStartSeconds, scheduleToCloseSeconds, startToCloseSeconds, heartbeatSeconds.
        """
        seconds = {field: float(order[name]) for name, field in _SECONDS.items() if order.get(name) is not None}
        tasks = self.schedule(
            order["domain"],
            order["taskList"],
            order.get("input", ""),
            name=order.get("name", "work"),
            version=order.get("version", "1"),
            count=int(order.get("count", 1)),
            timeouts=FakeTimeouts(**seconds),
        )
        return len(tasks)

    def answer_page(self, page: str, order: dict[str, Any]) -> dict[str, Any] | None:
        """Make a domain (page `domains`: name), or ask for the cancellation of tasks (page `cancel`: workflowId)."""
        if page == "domains":
            self.register_domain(order["name"])
            return {}
        if page != "cancel":
            return None
        asked = [
            task for task in self.tasks if task.workflow.workflow_id == order["workflowId"] and task.ended_at is None
        ]
        for task in asked:
            self.request_cancel(task)
        return {"requested": len(asked)}

    def state(self, *, with_tasks: bool = True) -> dict[str, Any]:
        """Return the oracle as JSON: domains, totals, faults that struck, executions by status, every task."""
        domains = {
            name: {
                list_name: {"queued": len(queue.waiting), "open_polls": queue.open_polls}
                for list_name, queue in domain.activity_lists.items()
            }
            for name, domain in self._model.domains.items()
        }
        statuses = Counter(
            workflow.close_status or "OPEN" for domain in self._model.domains.values() for workflow in domain.workflows
        )
        state: dict[str, Any] = {
            "now": self._clock.now(),
            "domains": domains,
            "counts": self.counts,
            "faults": dict(self.faults.seen),
            "executions": dict(sorted(statuses.items())),
        }
        return state | ({"tasks": [task.view() for task in self.tasks]} if with_tasks else {})
