"""What the worker and the operator agree on: names, and the forms of report and reply.

Standard library only, because both halves import it and handler images lag behind the operator by versions. Both sides
ignore unknown fields; a reader accepts every protocol from `OLDEST_PROTOCOL` on.
"""

from activity_worker.contract.fields import ContractError
from activity_worker.contract.grace import DEFAULT_CANCEL_GRACE_SECONDS, GRACE_MARGIN_SECONDS, pod_grace_seconds
from activity_worker.contract.names import (
    ERROR_DELETED,
    ERROR_NO_WORKER,
    ERROR_NOT_RECORDED,
    ERROR_WORKER_STOPPED,
    EXIT_ERROR,
    EXIT_OK,
    EXIT_POLLING,
    EXIT_USAGE,
    GROUP,
    LABEL_LEADER,
    LABEL_POOL,
    LABEL_REVISION,
    MAX_BUFFERED_EVENTS,
    MAX_MESSAGE_LENGTH,
    MAX_REPORT_BYTES,
    OLDEST_PROTOCOL,
    OOM_KILLED,
    PROTOCOL_VERSION,
    REPORT_PATH,
    TOKEN_AUDIENCE,
    Directive,
    Env,
    EventName,
    WorkerState,
    lease_id,
)
from activity_worker.contract.reply import Grant, Reply
from activity_worker.contract.report import (
    Counters,
    ExitOutput,
    HeldLease,
    LifecycleEvent,
    PollFault,
    PollTrouble,
    Report,
)
from activity_worker.contract.task import LeasedTask, ScheduledActivity
from activity_worker.contract.version import VERSION

__all__ = [
    "DEFAULT_CANCEL_GRACE_SECONDS",
    "ERROR_DELETED",
    "ERROR_NOT_RECORDED",
    "ERROR_NO_WORKER",
    "ERROR_WORKER_STOPPED",
    "EXIT_ERROR",
    "EXIT_OK",
    "EXIT_POLLING",
    "EXIT_USAGE",
    "GRACE_MARGIN_SECONDS",
    "GROUP",
    "LABEL_LEADER",
    "LABEL_POOL",
    "LABEL_REVISION",
    "MAX_BUFFERED_EVENTS",
    "MAX_MESSAGE_LENGTH",
    "MAX_REPORT_BYTES",
    "OLDEST_PROTOCOL",
    "OOM_KILLED",
    "PROTOCOL_VERSION",
    "REPORT_PATH",
    "TOKEN_AUDIENCE",
    "VERSION",
    "ContractError",
    "Counters",
    "Directive",
    "Env",
    "EventName",
    "ExitOutput",
    "Grant",
    "HeldLease",
    "LeasedTask",
    "LifecycleEvent",
    "PollFault",
    "PollTrouble",
    "Reply",
    "Report",
    "ScheduledActivity",
    "WorkerState",
    "lease_id",
    "pod_grace_seconds",
]
