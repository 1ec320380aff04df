"""A task that a source has handed out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from activity_worker.contract import fields

#: Longest of the texts below, in characters: the limits of Amazon SWF, and of W3C Trace Context.
_MAX_ID_LENGTH = 256
_MAX_TRACE_LENGTH = 512


@dataclass(frozen=True, slots=True)
class ScheduledActivity:
    """What a task is about, where its source has tasks of several activities.

    On Amazon SWF: its activity type (`name`, `version`), and the execution that scheduled it; `id` is the decider's
    name for the task, unique within its workflow execution (`workflow_id`, `run_id`). On a taskbroker: the task's
    `name`, its `namespace` and its `id`, and the trace that its headers name (W3C Trace Context).
    """

    name: str
    version: str
    id: str = ""
    workflow_id: str = ""
    run_id: str = ""
    namespace: str = ""
    traceparent: str = ""
    tracestate: str = ""

    def to_wire(self) -> dict[str, str]:
        """Return the JSON form."""
        wire = {
            "name": self.name,
            "version": self.version,
            "id": self.id,
            "workflowId": self.workflow_id,
            "runId": self.run_id,
        }
        more = {"namespace": self.namespace, "traceparent": self.traceparent, "tracestate": self.tracestate}
        return wire | {name: text for name, text in more.items() if text}

    @classmethod
    def from_wire(cls, data: Any) -> Self:
        """Read the JSON form; raises `ContractError`."""
        body: Mapping[str, Any] = fields.record(data, "activity")
        return cls(
            name=fields.text(body, "name", _MAX_ID_LENGTH),
            version=fields.text(body, "version", _MAX_ID_LENGTH),
            id=fields.text(body, "id", _MAX_ID_LENGTH),
            workflow_id=fields.text(body, "workflowId", _MAX_ID_LENGTH),
            run_id=fields.text(body, "runId", _MAX_ID_LENGTH),
            namespace=fields.text(body, "namespace", _MAX_ID_LENGTH),
            traceparent=fields.text(body, "traceparent", _MAX_TRACE_LENGTH),
            tracestate=fields.text(body, "tracestate", _MAX_TRACE_LENGTH),
        )


@dataclass(frozen=True, slots=True)
class LeasedTask:
    """One leased task: the service's token, and its input. Neither shows in a repr or a log.

    `activity` is what a task of Amazon SWF or of a taskbroker says besides. Tasks of other sources have none: their
    source is the activity. The input of an SWF task is any text, that of other tasks is JSON. `deadline_seconds` is the
    task's own hard deadline, from its receipt on; None: it has none.
    """

    token: str = field(repr=False)
    input: str = field(repr=False)
    activity: ScheduledActivity | None = None
    deadline_seconds: float | None = None
