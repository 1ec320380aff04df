"""The conditions of a pool: their types, their reasons, and how a new set is merged into the old one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Self, cast

from activity_operator.api.text import printable, shortened
from activity_operator.api.times import from_rfc3339, to_rfc3339

Status = Literal["True", "False", "Unknown"]

#: Lengths that metav1.Condition's schema allows.
MAX_MESSAGE_LENGTH = 32_768
#: Most bytes of a message as the operator writes it, so that a whole status stays small.
MAX_WRITTEN_MESSAGE = 1024


class ConditionType(StrEnum):
    """The type of a condition. As in kstatus, `Reconciling` and `Stalled` are present only while they are true."""

    #: The spec is accepted, the Deployment is applied, the source can be read. True at zero, at max, busy and paused.
    READY = "Ready"
    #: A change of the spec is rolling out. A change of size does not count: GitOps tools must not wait on autoscaling.
    RECONCILING = "Reconciling"
    #: The fault persists until a person acts.
    STALLED = "Stalled"
    #: There is work.
    ACTIVE = "Active"
    #: maxWorkers, minWorkers, the start breaker or the growth guard sets the size instead of the demand.
    SCALING_LIMITED = "ScalingLimited"
    #: `spec.paused` is true.
    PAUSED = "Paused"
    #: `spec.replicas` sets the size.
    PINNED = "Pinned"
    #: A signal is missing or stale, so the pool keeps its size.
    SIGNALS_STALE = "SignalsStale"
    #: At least half of the tasks failed in the last minutes. Present only while it is true.
    TASKS_FAILING = "TasksFailing"


class Reason(StrEnum):
    """Why a condition has its status: stable names, for people, alerts and the fault table."""

    # Ready, True
    POOL_READY = "PoolReady"
    SCALED_TO_ZERO = "ScaledToZero"
    PAUSED = "Paused"
    # Ready, False or Unknown
    PENDING = "Pending"
    INVALID_SPEC = "InvalidSpec"
    ACTIVITY_NOT_FOUND = "ActivityNotFound"
    DOMAIN_NOT_FOUND = "DomainNotFound"
    ACCESS_DENIED = "AccessDenied"
    WRONG_ACCOUNT = "WrongAccount"
    WRONG_REGION = "WrongRegion"
    BACKEND_UNREACHABLE = "BackendUnreachable"
    THROTTLED = "Throttled"
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 - a reason, not a secret
    SECRET_FORBIDDEN = "SecretForbidden"  # noqa: S105
    SECRET_UNUSABLE = "SecretUnusable"  # noqa: S105
    TLS_FAILED = "TlsFailed"
    QUERY_FAILED = "QueryFailed"
    POD_TEMPLATE_REJECTED = "PodTemplateRejected"
    QUOTA_EXCEEDED = "QuotaExceeded"
    WORKERS_NOT_READY = "WorkersNotReady"
    WORKERS_UNSCHEDULABLE = "WorkersUnschedulable"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    WORKER_CRASHED = "WorkerCrashed"
    NO_RUNTIME = "NoRuntime"
    REPORTS_UNAUTHENTICATED = "ReportsUnauthenticated"
    TENANCY_DENIED = "TenancyDenied"
    RECONCILE_FAILED = "ReconcileFailed"
    # Reconciling
    ROLLING_OUT = "RollingOut"
    # Stalled; other reasons of Stalled are those of Ready
    ROLLOUT_STOPPED = "RolloutStopped"
    # Active
    TASKS_PRESENT = "TasksPresent"
    NO_TASKS = "NoTasks"
    # ScalingLimited
    AT_MAX_WORKERS = "AtMaxWorkers"
    AT_MIN_WORKERS = "AtMinWorkers"
    START_BREAKER_OPEN = "StartBreakerOpen"
    LEASE_LIMIT_REACHED = "LeaseLimitReached"
    SCHEDULE_APPLIES = "ScheduleApplies"
    FROZEN = "Frozen"
    RECOMMENDED_ONLY = "RecommendedOnly"
    BELOW_ACTIVATION_THRESHOLD = "BelowActivationThreshold"
    WORKERS_IDLE = "WorkersIdle"
    WORKERS_CRASHING = "WorkersCrashing"
    WORKERS_MUTE = "WorkersMute"
    DEPLOYMENT_CONTESTED = "DeploymentContested"
    WITHIN_LIMITS = "WithinLimits"
    # Paused and Pinned
    NOT_PAUSED = "NotPaused"
    REPLICAS_SET = "ReplicasSet"
    REPLICAS_UNSET = "ReplicasUnset"
    # TasksFailing
    TASKS_FAILING = "TasksFailing"
    # SignalsStale
    REPORTS_MISSING = "ReportsMissing"
    BACKLOG_UNKNOWN = "BacklogUnknown"
    SIGNALS_FRESH = "SignalsFresh"


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition, with the fields of metav1.Condition."""

    type: ConditionType
    status: Status
    #: A Reason; a plain string if an older or newer operator wrote it.
    reason: str
    message: str = ""
    observed_generation: int = 0
    #: Since when `status` holds; None until merged.
    last_transition_time: datetime | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the condition for the API server. Raises ValueError before `merge` has set its transition time."""
        if self.last_transition_time is None:
            raise ValueError(f"condition {self.type} has no lastTransitionTime; merge it first")
        return {
            "type": str(self.type),
            "status": self.status,
            "reason": str(self.reason),
            "message": shortened(printable(self.message), MAX_WRITTEN_MESSAGE),
            "observedGeneration": self.observed_generation,
            "lastTransitionTime": to_rfc3339(self.last_transition_time),
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self | None:
        """Return the condition in `raw`; None if it is malformed or its type is unknown to this version."""
        try:
            return cls(
                type=ConditionType(raw["type"]),
                status=cast("Status", raw["status"]),
                reason=raw["reason"],
                message=raw.get("message", ""),
                observed_generation=raw.get("observedGeneration", 0),
                last_transition_time=from_rfc3339(raw["lastTransitionTime"]),
            )
        except (KeyError, ValueError):
            return None


def merge(old: Iterable[Condition], new: Iterable[Condition], now: datetime) -> tuple[Condition, ...]:
    """Return the new conditions with their transition times: kept where the status is unchanged, else `now`.

    Conditions that are only in `old` are dropped: a missing condition is not true. The order is that of ConditionType.
    """
    before = {condition.type: condition for condition in old}
    merged = {condition.type: _since(before.get(condition.type), condition, now) for condition in new}
    return tuple(merged[kind] for kind in ConditionType if kind in merged)


def _since(old: Condition | None, new: Condition, now: datetime) -> Condition:
    unchanged = old is not None and old.status == new.status and old.last_transition_time is not None
    since = old.last_transition_time if old is not None and unchanged else now
    return replace(new, last_transition_time=since)


def find(conditions: Iterable[Condition], kind: ConditionType) -> Condition | None:
    """Return the condition of that type, or None."""
    return next((condition for condition in conditions if condition.type == kind), None)


#: The schema of `status.conditions`, which is that of metav1.Condition.
CONDITIONS_SCHEMA: dict[str, Any] = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "type": {
                "type": "string",
                "maxLength": 316,
                "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
                r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                "description": "What the condition speaks of.",
            },
            "status": {
                "type": "string",
                "enum": ["True", "False", "Unknown"],
                "description": "Whether it holds.",
            },
            "reason": {
                "type": "string",
                "minLength": 1,
                "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                "description": "Why, as a stable name.",
            },
            "message": {
                "type": "string",
                "maxLength": MAX_MESSAGE_LENGTH,
                "description": "Why, in a sentence: the cause and the fix.",
            },
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "minimum": 0,
                "description": "The generation of the spec that it speaks of.",
            },
            "lastTransitionTime": {
                "type": "string",
                "format": "date-time",
                "description": "Since when the status is what it is.",
            },
        },
    },
}
