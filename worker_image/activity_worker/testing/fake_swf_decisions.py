"""Decision tasks of the SWF fake: a decider polls for them and decides which activities run and when it is over.

One decision task of an execution is open at a time, as at the service. Its time-out is not kept: a decider that
vanishes leaves its execution waiting.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from activity_worker.testing.fake_queue import FakeQueue
from activity_worker.testing.fake_swf_model import OPEN, UNKNOWN, FakeSwfModel, FakeTimeouts, FakeWorkflow
from activity_worker.testing.fake_tasks import FakeServiceError

#: For each field of FakeTimeouts: the decision's field, the type's default, and the service's name for its lack.
_TIMEOUTS: Final = (
    ("schedule_to_start_seconds", "scheduleToStartTimeout", "defaultTaskScheduleToStartTimeout", "SCHEDULE_TO_START"),
    ("schedule_to_close_seconds", "scheduleToCloseTimeout", "defaultTaskScheduleToCloseTimeout", "SCHEDULE_TO_CLOSE"),
    ("start_to_close_seconds", "startToCloseTimeout", "defaultTaskStartToCloseTimeout", "START_TO_CLOSE"),
    ("heartbeat_seconds", "heartbeatTimeout", "defaultTaskHeartbeatTimeout", "HEARTBEAT"),
)


class FakeDecisions:
    """The decision tasks of a model's executions."""

    def __init__(self, model: FakeSwfModel) -> None:
        self._model = model
        self._by_token: dict[str, FakeWorkflow] = {}
        self._acts: dict[str, Callable[[FakeWorkflow, dict[str, Any]], None]] = {
            "ScheduleActivityTask": self._schedule,
            "RequestCancelActivityTask": self._request_cancel,
            "CompleteWorkflowExecution": self._complete,
            "FailWorkflowExecution": self._fail,
            "CancelWorkflowExecution": self._cancel,
            "RecordMarker": self._record_marker,
        }
        model.decide = self.want

    def queue(self, workflow_domain: str, task_list: str) -> FakeQueue[FakeWorkflow]:
        """Return a list of decision tasks; a list exists by its use."""
        domain = self._model.domain(workflow_domain)
        return domain.decision_lists.setdefault(task_list, FakeQueue(self._model.clock, self._model.changed))

    def want(self, workflow: FakeWorkflow) -> None:
        """Schedule a decision task, or remember that another one must follow the one that is open."""
        if workflow.decision_list is None or workflow.close_status:
            return
        if workflow.decision_state == "started":
            workflow.decision_wanted = True
        if workflow.decision_state != "none":
            return
        workflow.decision_state = "scheduled"
        workflow.decision_event = self._model.add_event(
            workflow, "DecisionTaskScheduled", taskList={"name": workflow.decision_list}
        )
        self.queue(workflow.domain.name, workflow.decision_list).put(workflow)
        self._model.changed()

    def begin(self, workflow: FakeWorkflow, identity: str) -> dict[str, Any] | None:
        """Start a decision task that a poll has taken; return what the poll answers besides the events."""
        if workflow.close_status:
            return None
        before = workflow.decision_started_event
        workflow.decision_state = "started"
        workflow.decision_token = token = self._model.new_token()
        self._by_token[token] = workflow
        workflow.decision_started_event = self._model.add_event(
            workflow,
            "DecisionTaskStarted",
            scheduledEventId=workflow.decision_event,
            **({"identity": identity} if identity else {}),
        )
        self._model.changed()
        return {
            "taskToken": token,
            "startedEventId": workflow.decision_started_event,
            "previousStartedEventId": before,
            "workflowExecution": {"workflowId": workflow.workflow_id, "runId": workflow.run_id},
            "workflowType": {"name": workflow.name, "version": workflow.version},
        }

    def complete(self, token: str, decisions: list[dict[str, Any]]) -> None:
        """Act out the decisions of a decision task. Raises UnknownResourceFault and ValidationException."""
        workflow = self._by_token.pop(token, None)
        if workflow is None or workflow.close_status:
            raise FakeServiceError(UNKNOWN, "Unknown decision, scheduledEventId = 0")
        workflow.decided_event = self._model.add_event(
            workflow,
            "DecisionTaskCompleted",
            scheduledEventId=workflow.decision_event,
            startedEventId=workflow.decision_started_event,
        )
        for decision in decisions:
            kind = decision["decisionType"]
            act = self._acts.get(kind)
            if act is None:
                raise FakeServiceError("ValidationException", f"this fake does not know the decision {kind!r}")
            act(workflow, decision.get(f"{kind[0].lower()}{kind[1:]}DecisionAttributes") or {})
        workflow.decision_state = "none"
        if workflow.decision_wanted:
            workflow.decision_wanted = False
            self.want(workflow)
        self._model.changed()

    def _schedule(self, workflow: FakeWorkflow, said: dict[str, Any]) -> None:
        name, version = said["activityType"]["name"], said["activityType"]["version"]
        defaults = workflow.domain.types.get(("activity", name, version))
        timeouts, lacking = _timeouts(said, defaults or {})
        task_list = (said.get("taskList") or (defaults or {}).get("defaultTaskList") or {}).get("name", "")
        cause = ""
        if defaults is None:
            cause = "ACTIVITY_TYPE_DOES_NOT_EXIST"
        elif defaults.get("status") == "DEPRECATED":
            cause = "ACTIVITY_TYPE_DEPRECATED"
        elif any(task.activity_id == said["activityId"] and task.state in OPEN for task in workflow.tasks):
            cause = "ACTIVITY_ID_ALREADY_IN_USE"
        elif lacking:
            cause = f"DEFAULT_{lacking}_TIMEOUT_UNDEFINED"
        elif not task_list:
            cause = "DEFAULT_TASK_LIST_UNDEFINED"
        if cause:
            self._refuse(
                workflow, "ScheduleActivityTaskFailed", said["activityId"], cause, activityType=said["activityType"]
            )
            return
        self._model.schedule(
            workflow, said["activityId"], name, version, task_list, said.get("input") or "", timeouts,
            said.get("control") or "",
        )  # fmt: skip

    def _request_cancel(self, workflow: FakeWorkflow, said: dict[str, Any]) -> None:
        for task in workflow.tasks:
            if task.activity_id == said["activityId"] and task.state in OPEN:
                self._model.request_cancel(task)
                return
        self._refuse(workflow, "RequestCancelActivityTaskFailed", said["activityId"], "ACTIVITY_ID_UNKNOWN")

    def _refuse(self, workflow: FakeWorkflow, event: str, activity_id: str, cause: str, **more: Any) -> None:
        decided = {"decisionTaskCompletedEventId": workflow.decided_event}
        self._model.add_event(workflow, event, activityId=activity_id, cause=cause, **decided, **more)
        workflow.decision_wanted = True

    def _complete(self, workflow: FakeWorkflow, said: dict[str, Any]) -> None:
        self._close(workflow, "COMPLETED", "WorkflowExecutionCompleted", said)

    def _fail(self, workflow: FakeWorkflow, said: dict[str, Any]) -> None:
        self._close(workflow, "FAILED", "WorkflowExecutionFailed", said)

    def _cancel(self, workflow: FakeWorkflow, said: dict[str, Any]) -> None:
        self._close(workflow, "CANCELED", "WorkflowExecutionCanceled", said)

    def _close(self, workflow: FakeWorkflow, status: str, event: str, said: dict[str, Any]) -> None:
        self._model.close(workflow, status, event, decisionTaskCompletedEventId=workflow.decided_event, **said)

    def _record_marker(self, workflow: FakeWorkflow, said: dict[str, Any]) -> None:
        self._model.add_event(workflow, "MarkerRecorded", decisionTaskCompletedEventId=workflow.decided_event, **said)


def _timeouts(said: Mapping[str, Any], defaults: Mapping[str, Any]) -> tuple[FakeTimeouts, str]:
    """Return the time-outs of a decision, and the service's name of one that neither it nor the type defines."""
    timeouts, lacking = FakeTimeouts(), ""
    for field, name, default, code in _TIMEOUTS:
        text = said.get(name) or defaults.get(default)
        if text is None:
            lacking = lacking or code
        elif text != "NONE":
            timeouts = dataclasses.replace(timeouts, **{field: float(text)})
    return timeouts, lacking
