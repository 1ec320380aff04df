"""What the operator answers: the reply and its grants, with their JSON form."""

from dataclasses import dataclass, field
from typing import Any, Self

from activity_worker.contract import fields
from activity_worker.contract.names import PROTOCOL_VERSION, Directive
from activity_worker.contract.task import LeasedTask, ScheduledActivity


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease whose owner is now the worker: it runs the task and heartbeats from here on.

    `activity` is there for a task of Amazon SWF. The JSON form of another task's lease has no such field, as before.
    """

    id: str
    task_token: str = field(repr=False)
    input: str = field(repr=False)
    activity: ScheduledActivity | None = None

    @property
    def task(self) -> LeasedTask:
        """The task itself."""
        return LeasedTask(self.task_token, self.input, self.activity)

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form."""
        lease: dict[str, Any] = {"id": self.id, "taskToken": self.task_token, "input": self.input}
        return lease if self.activity is None else lease | {"activity": self.activity.to_wire()}

    @classmethod
    def from_wire(cls, data: Any) -> Self:
        """Read the JSON form; raises `ContractError`."""
        body = fields.record(data, "granted")
        activity = body.get("activity")
        return cls(
            id=fields.text(body, "id", 64),
            task_token=fields.text(body, "taskToken", 2048),
            input=fields.text(body, "input", 1 << 20),
            activity=None if activity is None else ScheduledActivity.from_wire(activity),
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """What the operator answers: its lease `term` (a lower one is ignored), when to report next, what to do.

    `offers` are ids of leases that the worker may claim in its next report, at once; `granted` answers claims,
    `refused` names claims that went to another worker; `ack` is the highest event sequence that need not be sent
    again; `released` echoes the report's released leases whose records are gone. `early_report`: the worker may report
    once before the interval ends if all its slots become busy or free; None from an operator that does not say it.
    """

    term: int
    next_report_seconds: float
    directive: Directive = Directive.RUN
    ack: int = 0
    offers: tuple[str, ...] = ()
    granted: tuple[Grant, ...] = ()
    refused: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    early_report: bool | None = None
    protocol: int = PROTOCOL_VERSION

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "protocol": self.protocol,
            "term": self.term,
            "nextReportSeconds": self.next_report_seconds,
            "directive": self.directive.value,
            "ack": self.ack,
            "offers": list(self.offers),
            "granted": [grant.to_wire() for grant in self.granted],
            "refused": list(self.refused),
            "released": list(self.released),
            **({} if self.early_report is None else {"earlyReport": self.early_report}),
        }

    @classmethod
    def from_wire(cls, data: Any) -> Self:
        """Read the JSON form; raises `ContractError`. A directive this runtime does not know means `keep`."""
        body = fields.record(data, "reply")
        directive = fields.text(body, "directive", 32)
        return cls(
            protocol=fields.count(body, "protocol"),
            term=fields.count(body, "term"),
            next_report_seconds=min(max(fields.seconds(body, "nextReportSeconds", 5.0), 0.1), 600.0),
            directive=Directive(directive) if directive in set(Directive) else Directive.KEEP,
            ack=fields.count(body, "ack"),
            offers=fields.ids(body, "offers"),
            granted=tuple(Grant.from_wire(item) for item in fields.items(body, "granted", 1000)),
            refused=fields.ids(body, "refused"),
            released=fields.ids(body, "released"),
            early_report=fields.flag(body, "earlyReport"),
        )
