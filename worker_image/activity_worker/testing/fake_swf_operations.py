"""The operations of the SWF fake: from parameters to an answer, limits checked as the service's model has them."""

import time
import uuid
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from activity_worker.testing.fake_calls import Operation, Parameters, answer_call
from activity_worker.testing.fake_clock import Clock
from activity_worker.testing.fake_queue import FakeQueue
from activity_worker.testing.fake_swf_decisions import FakeDecisions
from activity_worker.testing.fake_swf_model import OPEN, UNKNOWN, FakeDomain, FakeSwfModel, FakeWorkflow
from activity_worker.testing.fake_tasks import FakeServiceError

_MAX_LENGTHS: Final[Mapping[str, int]] = {
    "identity": 256,
    "taskToken": 1024,
    "result": 32_768,
    "reason": 256,
    "details": 32_768,
    "input": 32_768,
    "name": 256,
    "version": 64,
    "workflowId": 256,
}
_HEARTBEAT_LENGTHS: Final[Mapping[str, int]] = {**_MAX_LENGTHS, "details": 2048}


@dataclass(slots=True)
class SwfFakeSettings:
    """What a test may turn. `poller_limit` is of one task list; a count above `count_limit` is truncated to it."""

    poll_hold_seconds: float = 60.0
    poller_limit: int = 1000
    count_limit: int = 1000
    clock_offset_seconds: float = 0.0
    """The service's clock minus ours; when it is not 0, requests more than 5 minutes off are refused."""


class SwfOperations:
    """Answers operations by name over `model` and `decisions`."""

    def __init__(self, settings: SwfFakeSettings, model: FakeSwfModel, decisions: FakeDecisions, clock: Clock) -> None:
        self._settings = settings
        self._model = model
        self._decisions = decisions
        self._epoch = time.time() - clock.now()
        self._by_name: dict[str, Operation] = {
            "PollForActivityTask": self._poll_for_activity_task,
            "RecordActivityTaskHeartbeat": self._record_activity_task_heartbeat,
            "RespondActivityTaskCompleted": self._respond_activity_task_completed,
            "RespondActivityTaskFailed": self._respond_activity_task_failed,
            "RespondActivityTaskCanceled": self._respond_activity_task_canceled,
            "CountPendingActivityTasks": self._count_pending_activity_tasks,
            "CountPendingDecisionTasks": self._count_pending_decision_tasks,
            "PollForDecisionTask": self._poll_for_decision_task,
            "RespondDecisionTaskCompleted": self._respond_decision_task_completed,
            "RegisterDomain": self._register_domain,
            "DescribeDomain": self._describe_domain,
            "DeprecateDomain": self._deprecate_domain,
            "ListDomains": self._list_domains,
            "RegisterActivityType": lambda said: self._register_type("activity", said),
            "DescribeActivityType": lambda said: self._describe_type("activity", said),
            "RegisterWorkflowType": lambda said: self._register_type("workflow", said),
            "DescribeWorkflowType": lambda said: self._describe_type("workflow", said),
            "StartWorkflowExecution": self._start_workflow_execution,
            "DescribeWorkflowExecution": self._describe_workflow_execution,
            "RequestCancelWorkflowExecution": self._request_cancel_workflow_execution,
            "TerminateWorkflowExecution": self._terminate_workflow_execution,
            "GetWorkflowExecutionHistory": self._get_workflow_execution_history,
        }

    def answer(self, operation: str, parameters: Parameters) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        """Return the output, or an awaitable of it. Raises FakeServiceError."""
        most = _HEARTBEAT_LENGTHS if operation == "RecordActivityTaskHeartbeat" else _MAX_LENGTHS
        return answer_call(self._by_name, operation, parameters, most_characters=most)

    async def _poll_for_activity_task(self, said: Parameters) -> dict[str, Any]:
        domain = self._model.domain(said["domain"])
        queue = self._model.activity_list(domain, said["taskList"]["name"])
        self._check_pollers(queue)
        task = await queue.take(self._settings.poll_hold_seconds)
        if task is None or task.state != "scheduled":
            return self._empty()
        task_input = task.input
        self._model.begin(task, said.get("identity") or "")
        answer = {
            "taskToken": task.token,
            "activityId": task.activity_id,
            "startedEventId": task.started_event,
            "workflowExecution": {"workflowId": task.workflow.workflow_id, "runId": task.workflow.run_id},
            "activityType": {"name": task.name, "version": task.version},
        }
        return answer | ({"input": task_input} if task_input else {})

    def _record_activity_task_heartbeat(self, said: Parameters) -> dict[str, Any]:
        return {"cancelRequested": self._model.heartbeat(said["taskToken"], said.get("details") or "")}

    def _respond_activity_task_completed(self, said: Parameters) -> dict[str, Any]:
        self._model.complete(said["taskToken"], said.get("result") or "")
        return {}

    def _respond_activity_task_failed(self, said: Parameters) -> dict[str, Any]:
        self._model.fail(said["taskToken"], said.get("reason") or "", said.get("details") or "")
        return {}

    def _respond_activity_task_canceled(self, said: Parameters) -> dict[str, Any]:
        self._model.cancel(said["taskToken"], said.get("details") or "")
        return {}

    def _count_pending_activity_tasks(self, said: Parameters) -> dict[str, Any]:
        found = self._model.domain(said["domain"]).activity_lists.get(said["taskList"]["name"])
        return self._count(len(found.waiting) if found else 0)

    def _count_pending_decision_tasks(self, said: Parameters) -> dict[str, Any]:
        found = self._model.domain(said["domain"]).decision_lists.get(said["taskList"]["name"])
        return self._count(len(found.waiting) if found else 0)

    def _count(self, number: int) -> dict[str, Any]:
        limit = self._settings.count_limit
        return {"count": min(number, limit), "truncated": number > limit}

    async def _poll_for_decision_task(self, said: Parameters) -> dict[str, Any]:
        queue = self._decisions.queue(said["domain"], said["taskList"]["name"])
        self._check_pollers(queue)
        workflow = await queue.take(self._settings.poll_hold_seconds)
        begun = None if workflow is None else self._decisions.begin(workflow, said.get("identity") or "")
        if workflow is None or begun is None:
            return self._empty()
        return begun | {"events": self._events(workflow, reverse=bool(said.get("reverseOrder")))}

    def _respond_decision_task_completed(self, said: Parameters) -> dict[str, Any]:
        self._decisions.complete(said["taskToken"], said.get("decisions") or [])
        return {}

    def _check_pollers(self, queue: FakeQueue[Any]) -> None:
        if queue.open_polls >= self._settings.poller_limit:
            raise FakeServiceError("LimitExceededFault", "Too many pollers on this task list")

    def _empty(self) -> dict[str, Any]:
        self._model.counts["empty_polls"] += 1
        return {"taskToken": "", "startedEventId": 0, "previousStartedEventId": 0}

    def _register_domain(self, said: Parameters) -> dict[str, Any]:
        if said["name"] in self._model.domains:
            raise FakeServiceError("DomainAlreadyExistsFault", said["name"])
        self._model.register_domain(said["name"])
        return {}

    def _describe_domain(self, said: Parameters) -> dict[str, Any]:
        domain = self._model.domain(said["name"])
        return {
            "domainInfo": _domain_info(domain),
            "configuration": {"workflowExecutionRetentionPeriodInDays": "1"},
        }

    def _deprecate_domain(self, said: Parameters) -> dict[str, Any]:
        domain = self._model.domain(said["name"])
        _refuse_deprecated(domain)
        domain.status = "DEPRECATED"
        return {}

    def _list_domains(self, said: Parameters) -> dict[str, Any]:
        wanted = said["registrationStatus"]
        found = [domain for domain in self._model.domains.values() if domain.status == wanted]
        return {"domainInfos": [_domain_info(domain) for domain in found]}

    def _register_type(self, kind: str, said: Parameters) -> dict[str, Any]:
        domain = self._model.domain(said["domain"])
        _refuse_deprecated(domain)
        key = (kind, said["name"], said["version"])
        if key in domain.types:
            raise FakeServiceError(
                "TypeAlreadyExistsFault", f"{kind.capitalize()}Type=[name={said['name']}, version={said['version']}]"
            )
        defaults = {name: value for name, value in said.items() if name.startswith("default")}
        domain.types[key] = defaults | {"status": "REGISTERED", "created": self._model.clock.now()}
        return {}

    def _describe_type(self, kind: str, said: Parameters) -> dict[str, Any]:
        asked = said[f"{kind}Type"]
        found = self._model.domain(said["domain"]).types.get((kind, asked["name"], asked["version"]))
        if found is None:
            raise FakeServiceError(
                UNKNOWN, f"Unknown type: {kind.capitalize()}Type=[name={asked['name']}, version={asked['version']}]"
            )
        info = {
            f"{kind}Type": {"name": asked["name"], "version": asked["version"]},
            "status": found["status"],
            "creationDate": self._epoch + found["created"],
        }
        return {
            "typeInfo": info,
            "configuration": {name: value for name, value in found.items() if name.startswith("default")},
        }

    def _start_workflow_execution(self, said: Parameters) -> dict[str, Any]:
        domain = self._model.domain(said["domain"])
        _refuse_deprecated(domain)
        name, version = said["workflowType"]["name"], said["workflowType"]["version"]
        known = domain.types.get(("workflow", name, version))
        if known is None:
            raise FakeServiceError(UNKNOWN, f"Unknown type: WorkflowType=[name={name}, version={version}]")
        workflow_id = said.get("workflowId") or str(uuid.uuid4())
        if any(each.workflow_id == workflow_id and not each.close_status for each in domain.workflows):
            raise FakeServiceError("WorkflowExecutionAlreadyStartedFault", "Already Started")
        task_list = (said.get("taskList") or known.get("defaultTaskList") or {}).get("name")
        if not task_list:
            raise FakeServiceError("DefaultUndefinedFault", "Default task list undefined")
        workflow = self._model.start(
            domain, workflow_id, name, version, input=said.get("input") or "", decision_list=task_list
        )
        return {"runId": workflow.run_id}

    def _describe_workflow_execution(self, said: Parameters) -> dict[str, Any]:
        workflow = self._workflow(said)
        status = "CLOSED" if workflow.close_status else "OPEN"
        closed: dict[str, Any] = {}
        if workflow.closed_at is not None:
            closed = {"closeStatus": workflow.close_status, "closeTimestamp": self._epoch + workflow.closed_at}
        return {
            "executionInfo": {
                "execution": {"workflowId": workflow.workflow_id, "runId": workflow.run_id},
                "workflowType": {"name": workflow.name, "version": workflow.version},
                "startTimestamp": self._epoch + workflow.started_at,
                "executionStatus": status,
                "cancelRequested": workflow.cancel_requested,
            }
            | closed,
            "openCounts": {
                "openActivityTasks": sum(task.state in OPEN for task in workflow.tasks),
                "openDecisionTasks": int(workflow.decision_state != "none" and status == "OPEN"),
                "openTimers": 0,
                "openChildWorkflowExecutions": 0,
            },
        }

    def _request_cancel_workflow_execution(self, said: Parameters) -> dict[str, Any]:
        workflow = self._open(said)
        workflow.cancel_requested = True
        self._model.add_event(workflow, "WorkflowExecutionCancelRequested")
        self._decisions.want(workflow)
        self._model.changed()
        return {}

    def _terminate_workflow_execution(self, said: Parameters) -> dict[str, Any]:
        given = {name: said[name] for name in ("reason", "details") if said.get(name)}
        self._model.close(
            self._open(said), "TERMINATED", "WorkflowExecutionTerminated", childPolicy="TERMINATE", **given
        )
        return {}

    def _get_workflow_execution_history(self, said: Parameters) -> dict[str, Any]:
        execution = said["execution"]
        workflow = self._model.workflow(self._model.domain(said["domain"]), execution["workflowId"], execution["runId"])
        return {"events": self._events(workflow, reverse=bool(said.get("reverseOrder")))}

    def _events(self, workflow: FakeWorkflow, *, reverse: bool) -> list[dict[str, Any]]:
        events = [event | {"eventTimestamp": self._epoch + event["eventTimestamp"]} for event in workflow.history]
        return events[::-1] if reverse else events

    def _workflow(self, said: Parameters) -> FakeWorkflow:
        named = said.get("execution") or said
        return self._model.workflow(self._model.domain(said["domain"]), named["workflowId"], named.get("runId") or "")

    def _open(self, said: Parameters) -> FakeWorkflow:
        workflow = self._workflow(said)
        if workflow.close_status:
            raise FakeServiceError(UNKNOWN, f"Unknown execution: WorkflowExecution=[workflowId={workflow.workflow_id}]")
        return workflow


def _refuse_deprecated(domain: FakeDomain) -> None:
    if domain.status == "DEPRECATED":
        raise FakeServiceError("DomainDeprecatedFault", domain.name)


def _domain_info(domain: FakeDomain) -> dict[str, Any]:
    return {"name": domain.name, "status": domain.status}
