"""The status of a pool. The operator writes it only on a change, and never with task payloads or tokens."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationError, WithJsonSchema

from activity_operator.api.conditions import CONDITIONS_SCHEMA, Condition
from activity_operator.api.model import ApiModel, Int32, Int64
from activity_operator.api.text import printable, shortened
from activity_operator.api.times import from_rfc3339, to_rfc3339

#: Most entries of the rings and most characters of a text. Longer texts are cut.
MAX_DECISIONS = 10
MAX_EVENTS = 20
MAX_VICTIMS = 20
MAX_WORKERS_NAMED = 20
MAX_RUNTIMES = 5
MAX_TEXT_LENGTH = 256
MAX_WORD_LENGTH = 64


def _clip(length: int) -> BeforeValidator:
    """Cut a text to `length` bytes of JSON, and escape unprintable characters.

    Otherwise one long or malformed message of a worker would make the API server refuse the whole status.
    """
    return BeforeValidator(lambda text: shortened(printable(text[:length]), length) if isinstance(text, str) else text)


def _last(count: int) -> BeforeValidator:
    """Keep the last `count` entries."""
    return BeforeValidator(lambda items: tuple(items)[-count:] if isinstance(items, Sequence) else items)


def _read_conditions(raw: Any) -> Any:
    if not isinstance(raw, Iterable):
        return raw
    return tuple(found for item in raw if (found := _read_condition(item)) is not None)


def _read_condition(raw: Any) -> Any:
    return Condition.from_dict(raw) if isinstance(raw, Mapping) else raw


def _write_conditions(conditions: Iterable[Condition]) -> list[dict[str, Any]]:
    return [condition.as_dict() for condition in conditions]


Text = Annotated[str, _clip(MAX_TEXT_LENGTH), Field(max_length=MAX_TEXT_LENGTH)]
Word = Annotated[str, _clip(MAX_WORD_LENGTH), Field(max_length=MAX_WORD_LENGTH)]
#: A pod of a Deployment has at most 63 characters in its name, as a name in the spec has.
Name = Annotated[str, _clip(63), Field(max_length=63)]
Time = Annotated[
    datetime,
    BeforeValidator(lambda raw: from_rfc3339(raw) if isinstance(raw, str) else raw),
    PlainSerializer(to_rfc3339, return_type=str),
]
Conditions = Annotated[
    tuple[Condition, ...],
    BeforeValidator(_read_conditions),
    PlainSerializer(_write_conditions),
    WithJsonSchema(CONDITIONS_SCHEMA),
]


class DecisionRecord(ApiModel):
    """One decision that changed the size, with what it was made from."""

    at: Time = Field(description="When it was decided.")
    backlog: Int32 | None = Field(default=None, description="Tasks waiting; absent when unknown.")
    inflight: Int32 = Field(default=0, description="Tasks running in workers.")
    held: Int32 = Field(default=0, description="Tasks that the operator held for workers to come.")
    workers: Int32 = Field(default=0, description="Workers before the decision.")
    desired: Int32 = Field(description="Workers decided on.")
    limit: Word = Field(
        default="",
        description="Which rule decided: demand when none bound it, else reserve, throughput, activation, freeze, "
        "schedule, min, max, pin, paused, held (the window), idle, doubt, leases, refused, breaker, crashing, mute or "
        "unprepared.",
    )
    reason: Text = Field(default="", description="The decision in a sentence.")
    victims: Annotated[tuple[Name, ...], Field(max_length=MAX_VICTIMS), _last(MAX_VICTIMS)] = Field(
        default=(),
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Pods chosen to leave (at most 20 are named).",
    )


class ExitRecord(ApiModel):
    """How a worker ended."""

    code: Int32 = Field(description="Exit code of the worker.")
    error: Text = Field(default="", description="Name of the error that ended it, or empty.")


class EventRecord(ApiModel):
    """One event in the life of a worker; equal ones of the same worker are counted, not repeated."""

    at: Time = Field(description="When it happened last.")
    name: Word = Field(description="Such as worker:running, worker:stopped, OOMKilled or Unschedulable.")
    worker: Name = Field(default="", description="The worker's pod.")
    message: Text = Field(default="", description="What happened, in a sentence.")
    count: Int32 = Field(default=1, ge=1, description="How often it happened to this worker.")
    exit: ExitRecord | None = Field(default=None, description="How the worker ended, if it did.")


class WorkerRecord(ApiModel):
    """One worker that cannot do its work."""

    worker: Name = Field(description="The worker's pod.")
    revision: Word = Field(default="", description="The template revision of the pod.")
    state: Word = Field(
        description="Unschedulable, Waiting (its container does not start), FailedStart (it ended before its first "
        "task), Mute (it does not report to this leader), Silent (its reports stopped) or CannotPoll."
    )
    since: Time = Field(description="When the operator first saw it in this state.")
    reason: Text = Field(default="", description="Why, in a few words.")


class TaskSummary(ApiModel):
    """What the workers did in the ten minutes before `at`, from their reports; new only after a clear change."""

    at: Time = Field(description="When it was summed up.")
    per_minute: float = Field(default=0.0, description="Tasks a minute that succeeded or failed.")
    failed_percent: Int32 = Field(default=0, description="Share of these tasks that failed, in percent.")
    mean_seconds: float | None = Field(default=None, description="Mean time of a task, in seconds.")
    p95_seconds: float | None = Field(default=None, description="Time within which 95 % of the tasks ended.")
    heartbeat_failures: Int32 = Field(default=0, description="Task heartbeats that were not accepted.")
    last_error: Word = Field(default="", description="Name of the last failed task's error.")


class RuntimeCount(ApiModel):
    """How many workers run one version of the worker's package."""

    version: Word = Field(description="Version of the worker's package.")
    workers: Int32 = Field(description="Workers that report it.")


class ScheduleStatus(ApiModel):
    """Which schedule applies, and until when."""

    active: Name = Field(default="", description="Name of the schedule that applies; empty when none does.")
    next_change: Time | None = Field(default=None, description="When a schedule next begins or ends.")


class PoolStatus(ApiModel):
    """What the operator saw, decided and did."""

    observed_generation: Int64 = Field(
        default=-1, description="The generation of the spec that this status speaks of; -1 before the first look."
    )
    conditions: Conditions = Field(default=(), description="Ready says whether the pool can do its work, and why not.")
    replicas: Int32 = Field(default=0, description="Worker pods that exist.")
    ready_replicas: Int32 = Field(default=0, description="Workers that are ready.")
    desired_replicas: Int32 = Field(default=0, description="Workers wanted.")
    recommended_replicas: Int32 | None = Field(
        default=None, description="Workers that the operator would set; present with scaling.mode Recommend."
    )
    schedule: ScheduleStatus | None = Field(
        default=None, description="Which schedule applies; present when the pool has schedules."
    )
    busy_workers: Int32 = Field(default=0, description="Workers with at least one task.")
    backlog: Int32 | None = Field(
        default=None,
        json_schema_extra={"nullable": True},
        description="Tasks waiting. Absent when the source cannot tell, as Step Functions cannot; with activation.mode "
        "CloudWatch an estimate, minutes old.",
    )
    waiting: Word = Field(
        default="",
        description="Tasks waiting, as text: 12, or ≥ 12 where only some are known, such as those that the operator "
        "holds. Empty when none is known.",
    )
    oldest_waiting_since: Time | None = Field(
        default=None,
        description="Since when the first of the waiting tasks could have been run. Absent when none waits, and where "
        "the source cannot tell: only a taskbroker can.",
    )
    selector: Annotated[str, Field(max_length=512)] = Field(
        default="", description="Label selector of the workers' pods, for /scale."
    )
    last_scale_time: Time | None = Field(default=None, description="When the wanted size last changed.")
    last_scale_reason: Text = Field(default="", description="Why it changed, in a sentence.")
    proven_revision: Word = Field(
        default="", description="The template revision that last had a worker report: it is known to start."
    )
    stopped_revision: Word = Field(
        default="", description="The template revision whose rollout was stopped because its tasks fail."
    )
    decisions: Annotated[tuple[DecisionRecord, ...], Field(max_length=MAX_DECISIONS), _last(MAX_DECISIONS)] = Field(
        default=(),
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="The last 10 decisions that changed the size, oldest first.",
    )
    events: Annotated[tuple[EventRecord, ...], Field(max_length=MAX_EVENTS), _last(MAX_EVENTS)] = Field(
        default=(),
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Up to 20 events of workers' lives, oldest first. The last event of each worker stays longest.",
    )

    workers: Annotated[tuple[WorkerRecord, ...], Field(max_length=MAX_WORKERS_NAMED), _last(MAX_WORKERS_NAMED)] = Field(
        default=(),
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Workers that cannot do their work, at most 20, those of the longest time first.",
    )
    tasks: TaskSummary | None = Field(
        default=None, description="What the workers did lately. It stays as it is while no task runs."
    )
    runtimes: Annotated[tuple[RuntimeCount, ...], Field(max_length=MAX_RUNTIMES), _last(MAX_RUNTIMES)] = Field(
        default=(),
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Versions of the worker's package in the pool, at most 5.",
    )

    def as_dict(self) -> dict[str, Any]:
        """Return the status for the API server, without fields that are None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def parse_status(raw: Mapping[str, Any] | None) -> PoolStatus:
    """Return the status in `raw`, or an empty one if there is none.

    A status that cannot be read, for example with a time before the year 1, gives an empty one; the operator then
    writes the whole status again.
    """
    try:
        return PoolStatus.model_validate(raw or {})
    except ValidationError:
        return PoolStatus()
