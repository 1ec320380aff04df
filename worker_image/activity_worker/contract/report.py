"""The report of a worker to the operator, its parts, and their JSON form."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from activity_worker.contract import fields
from activity_worker.contract.durations import PLACES, Durations
from activity_worker.contract.fields import ContractError
from activity_worker.contract.names import (
    MAX_BUFFERED_EVENTS,
    MAX_MESSAGE_LENGTH,
    OLDEST_PROTOCOL,
    PROTOCOL_VERSION,
    WorkerState,
)

#: Most characters of the name of a task's error.
MAX_ERROR_LENGTH = 64
#: Most places of durations that are read; a newer worker may send more than this side knows.
MAX_DURATIONS = 100


@dataclass(frozen=True, slots=True)
class ExitOutput:
    """How a worker ended: exit code and, for an errored stop, what happened (at most 256 characters)."""

    code: int
    error: str = ""

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"code": self.code, "error": self.error[:MAX_MESSAGE_LENGTH]}

    @classmethod
    def from_wire(cls, data: Any) -> Self:
        """Read the JSON form; raises `ContractError`."""
        body = fields.record(data, "exit")
        # The pool's status holds it in 32 bits.
        return cls(
            code=fields.count(body, "code", bits=31), error=fields.text(body, "error", 4096)[:MAX_MESSAGE_LENGTH]
        )


class PollFault(StrEnum):
    """The kinds of poll errors, one for each way to repair them."""

    DENIED = "denied"
    MISSING = "missing"
    THROTTLED = "throttled"
    UNREACHABLE = "unreachable"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class PollTrouble:
    """The error of polls that keep failing; `code` and `message` are the source's."""

    fault: PollFault
    code: str = ""
    message: str = ""

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"fault": self.fault.value, "code": self.code[:64], "message": self.message[:MAX_MESSAGE_LENGTH]}

    @classmethod
    def from_wire(cls, data: Any) -> Self:
        """Read the JSON form; a fault that a newer worker names is `OTHER`. Raises `ContractError`."""
        body = fields.record(data, "pollTrouble")
        fault = fields.text(body, "fault", 32)
        return cls(
            fault=PollFault(fault) if fault in set(PollFault) else PollFault.OTHER,
            code=fields.text(body, "code", 64),
            message=fields.text(body, "message", 4096)[:MAX_MESSAGE_LENGTH],
        )


@dataclass(frozen=True, slots=True)
class LifecycleEvent:
    """One event in the life of a worker, without any task's payload. `at` is Unix seconds."""

    sequence: int
    name: str
    at: float
    message: str = ""

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "sequence": self.sequence,
            "name": self.name,
            "at": self.at,
            "message": self.message[:MAX_MESSAGE_LENGTH],
        }

    @classmethod
    def from_wire(cls, data: Any) -> Self:
        """Read the JSON form; raises `ContractError`."""
        body = fields.record(data, "events")
        return cls(
            sequence=fields.count(body, "sequence"),
            name=fields.text(body, "name", 64),
            at=fields.seconds(body, "at"),
            message=fields.text(body, "message", 4096)[:MAX_MESSAGE_LENGTH],
        )


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals since the worker's container started.

    `task_seconds` is the time of the tasks that succeeded or failed, and `durations` how many of them ended within each
    bound; a worker of an earlier version leaves both out. `last_error` is the name of the last failed task's error.
    """

    received: int = 0
    succeeded: int = 0
    failed: int = 0
    task_heartbeat_failures: int = 0
    empty_polls: int = 0
    busy_seconds: float = 0.0
    task_seconds: float = 0.0
    durations: Durations = ()
    last_error: str = ""

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "received": self.received,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "taskHeartbeatFailures": self.task_heartbeat_failures,
            "emptyPolls": self.empty_polls,
            "busySeconds": round(self.busy_seconds, 3),
            "taskSeconds": round(self.task_seconds, 3),
            "durations": list(self.durations),
            "lastError": self.last_error[:MAX_ERROR_LENGTH],
        }

    @classmethod
    def from_wire(cls, data: Any) -> Self:
        """Read the JSON form; raises `ContractError`."""
        body = fields.record(data, "counters")
        return cls(
            received=fields.count(body, "received"),
            succeeded=fields.count(body, "succeeded"),
            failed=fields.count(body, "failed"),
            task_heartbeat_failures=fields.count(body, "taskHeartbeatFailures"),
            empty_polls=fields.count(body, "emptyPolls"),
            busy_seconds=fields.seconds(body, "busySeconds"),
            task_seconds=fields.seconds(body, "taskSeconds"),
            durations=fields.counts(body, "durations", MAX_DURATIONS)[:PLACES],
            last_error=fields.text(body, "lastError", 4096)[:MAX_ERROR_LENGTH],
        )


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A task that the worker holds: `lease_id` of its token, and seconds since it was received."""

    id: str
    age_seconds: float

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"id": self.id, "ageSeconds": round(self.age_seconds, 3)}

    @classmethod
    def from_wire(cls, data: Any) -> Self:
        """Read the JSON form; raises `ContractError`."""
        body = fields.record(data, "leases")
        return cls(id=fields.text(body, "id", 64), age_seconds=fields.seconds(body, "ageSeconds"))


@dataclass(frozen=True, slots=True)
class Report:
    """What one worker says: who it is, what it does, and what happened since the last acknowledgement.

    `incarnation` is new at every container start; `sequence` grows by one a report within an incarnation. `open_polls`
    counts polls in flight, `idle_seconds` is for how long a free slot has waited for a task (the longest). `claims` are
    offered leases that the worker asks to own; an offered lease that it holds is in `leases`, one that it has concluded
    in `released` until the operator acknowledges it in `Reply.released`. `poll_trouble` is there while no free slot can
    poll.
    """

    namespace: str
    pool: str
    pod_name: str
    pod_uid: str
    incarnation: str
    sequence: int
    state: WorkerState
    slots: int
    busy: int
    open_polls: int = 0
    idle_seconds: float = 0.0
    leases: tuple[HeldLease, ...] = ()
    counters: Counters = field(default_factory=Counters)
    events: tuple[LifecycleEvent, ...] = ()
    dropped_events: int = 0
    claims: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    exit: ExitOutput | None = None
    poll_trouble: PollTrouble | None = None
    runtime: str = ""
    protocol: int = PROTOCOL_VERSION

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "protocol": self.protocol,
            "namespace": self.namespace,
            "pool": self.pool,
            "podName": self.pod_name,
            "podUid": self.pod_uid,
            "incarnation": self.incarnation,
            "sequence": self.sequence,
            "state": self.state.value,
            "slots": self.slots,
            "busy": self.busy,
            "openPolls": self.open_polls,
            "idleSeconds": round(self.idle_seconds, 3),
            "leases": [lease.to_wire() for lease in self.leases],
            "counters": self.counters.to_wire(),
            "events": [event.to_wire() for event in self.events],
            "droppedEvents": self.dropped_events,
            "claims": list(self.claims),
            "released": list(self.released),
            "exit": None if self.exit is None else self.exit.to_wire(),
            "pollTrouble": None if self.poll_trouble is None else self.poll_trouble.to_wire(),
            "runtime": self.runtime,
        }

    @classmethod
    def from_wire(cls, data: Any) -> Self:
        """Read the JSON form, from a worker that is not trusted; raises `ContractError` naming the field."""
        body = fields.record(data, "report")
        protocol = fields.count(body, "protocol")
        if protocol < OLDEST_PROTOCOL:
            raise ContractError(f"protocol: this side speaks {OLDEST_PROTOCOL} and later, got {protocol}")
        state = fields.text(body, "state", 32)
        if state not in set(WorkerState):
            raise ContractError(f"state: expected one of {', '.join(WorkerState)}")
        slots, busy = fields.count(body, "slots"), fields.count(body, "busy")
        if slots > 1000 or busy > slots:
            raise ContractError("slots, busy: expected busy <= slots <= 1000")
        end, trouble = body.get("exit"), body.get("pollTrouble")
        return cls(
            protocol=protocol,
            namespace=fields.text(body, "namespace"),
            pool=fields.text(body, "pool"),
            pod_name=fields.text(body, "podName"),
            pod_uid=fields.text(body, "podUid"),
            incarnation=fields.text(body, "incarnation", 64),
            sequence=fields.count(body, "sequence"),
            state=WorkerState(state),
            slots=slots,
            busy=busy,
            open_polls=fields.count(body, "openPolls"),
            idle_seconds=fields.seconds(body, "idleSeconds"),
            leases=tuple(HeldLease.from_wire(item) for item in fields.items(body, "leases", 1000)),
            counters=Counters.from_wire(body.get("counters", {})),
            events=tuple(LifecycleEvent.from_wire(item) for item in fields.items(body, "events", MAX_BUFFERED_EVENTS)),
            dropped_events=fields.count(body, "droppedEvents"),
            claims=fields.ids(body, "claims"),
            released=fields.ids(body, "released"),
            exit=None if end is None else ExitOutput.from_wire(end),
            poll_trouble=None if trouble is None else PollTrouble.from_wire(trouble),
            runtime=fields.text(body, "runtime", 64),
        )
