"""The names both halves use: protocol numbers, labels, exit codes, environment variables, events, states."""

import functools
import hashlib
from enum import StrEnum

PROTOCOL_VERSION = 1
OLDEST_PROTOCOL = 1

#: The audience of the ServiceAccount token with which a worker reports.
TOKEN_AUDIENCE = "activitypools.dev/operator"  # noqa: S105 - a name, not a secret
#: POST target of a report, and the largest body in bytes that the operator reads.
REPORT_PATH = "/v1/report"
MAX_REPORT_BYTES = 262_144
#: The number of events that a worker keeps until they are acknowledged, and the length of an event's message.
MAX_BUFFERED_EVENTS = 100
MAX_MESSAGE_LENGTH = 256

GROUP = "activitypools.dev"
LABEL_POOL = f"{GROUP}/pool"
LABEL_REVISION = f"{GROUP}/revision"
LABEL_LEADER = f"{GROUP}/leader"

#: Exit codes of `activity-worker`, as `exitOutput.code`.
EXIT_OK = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_POLLING = 10

#: Error names with which this project fails a task.
ERROR_WORKER_STOPPED = "ActivityPool.WorkerStopped"
ERROR_DELETED = "ActivityPool.Deleted"
ERROR_NO_WORKER = "ActivityPool.NoWorker"
ERROR_NOT_RECORDED = "ActivityPool.NotRecorded"


class Env(StrEnum):
    """Environment variables that the operator sets in a worker's pod."""

    ACTIVITY_ARN = "ACTIVITY_ARN"
    HANDLER = "ACTIVITY_HANDLER"
    SLOTS = "ACTIVITY_SLOTS"
    REGION = "AWS_REGION"
    ENDPOINT_URL = "AWS_ENDPOINT_URL_SFN"
    REDIS_URL = "ACTIVITY_REDIS_URL"
    REDIS_FLOW = "ACTIVITY_REDIS_FLOW"
    REDIS_QUEUE = "ACTIVITY_REDIS_QUEUE"
    REDIS_NEXT_QUEUE = "ACTIVITY_REDIS_NEXT_QUEUE"
    REDIS_ATTRIBUTES = "ACTIVITY_REDIS_ATTRIBUTES"
    REDIS_LOCK_SECONDS = "ACTIVITY_REDIS_LOCK_SECONDS"
    REDIS_RENEW_LOCK = "ACTIVITY_REDIS_RENEW_LOCK"
    REDIS_CONCLUDE = "ACTIVITY_REDIS_CONCLUDE"
    REDIS_BLOCK_SECONDS = "ACTIVITY_REDIS_BLOCK_SECONDS"
    SWF_DOMAIN = "ACTIVITY_SWF_DOMAIN"
    SWF_TASK_LIST = "ACTIVITY_SWF_TASK_LIST"
    SWF_ENDPOINT_URL = "AWS_ENDPOINT_URL_SWF"
    SWF_REGISTER = "ACTIVITY_SWF_REGISTER_ACTIVITY_TYPES"
    STORE_URL = "ACTIVITY_STORE_URL"
    STORE_LEASE_SECONDS = "ACTIVITY_STORE_LEASE_SECONDS"
    TASKBROKER = "ACTIVITY_TASKBROKER"
    TASKBROKER_APPLICATION = "ACTIVITY_TASKBROKER_APPLICATION"
    TASKBROKER_NAMESPACE = "ACTIVITY_TASKBROKER_NAMESPACE"
    TASKBROKER_SECRETS = "ACTIVITY_TASKBROKER_SECRETS"
    TASKBROKER_TLS = "ACTIVITY_TASKBROKER_TLS"
    TASKBROKER_CA = "ACTIVITY_TASKBROKER_CA"
    TASKBROKER_DELIVERY = "ACTIVITY_TASKBROKER_DELIVERY"
    TASKBROKER_PUSH_ADDRESS = "ACTIVITY_TASKBROKER_PUSH_ADDRESS"
    TASKBROKER_ADVERTISE = "ACTIVITY_TASKBROKER_ADVERTISE"
    TASKBROKER_PUSH_CERTIFICATE = "ACTIVITY_TASKBROKER_PUSH_CERTIFICATE"
    TASKBROKER_PUSH_KEY = "ACTIVITY_TASKBROKER_PUSH_KEY"
    TASK_HEARTBEAT_SECONDS = "ACTIVITY_TASK_HEARTBEAT_SECONDS"
    TASK_DEADLINE_SECONDS = "ACTIVITY_TASK_DEADLINE_SECONDS"
    DRAIN_TIMEOUT_SECONDS = "ACTIVITY_DRAIN_TIMEOUT_SECONDS"
    POOL = "ACTIVITY_POOL"
    POD_NAMESPACE = "POD_NAMESPACE"
    POD_NAME = "POD_NAME"
    POD_UID = "POD_UID"
    REPORT_URL = "ACTIVITY_REPORT_URL"
    REPORT_TOKEN_FILE = "ACTIVITY_REPORT_TOKEN_FILE"  # noqa: S105 - a path's name
    REPORT_CA_FILE = "ACTIVITY_REPORT_CA_FILE"
    HEALTH_PORT = "ACTIVITY_HEALTH_PORT"
    LOG_LEVEL = "ACTIVITY_LOG_LEVEL"
    LOG_FORMAT = "ACTIVITY_LOG_FORMAT"
    LOG_FAILURES = "ACTIVITY_LOG_FAILURES"
    ON_ERROR = "ACTIVITY_ON_ERROR"
    CANCEL_GRACE_SECONDS = "ACTIVITY_CANCEL_GRACE_SECONDS"
    POLL_ATTEMPTS = "ACTIVITY_POLL_ATTEMPTS"
    POLL_MAX_PAUSE_SECONDS = "ACTIVITY_POLL_MAX_PAUSE_SECONDS"


#: The event of a handler's process that the kernel killed for want of memory; the cluster's word for containers.
OOM_KILLED = "OOMKilled"


class EventName(StrEnum):
    """The fifteen lifecycle events."""

    WORKER_STARTING = "worker:starting"
    WORKER_RUNNING = "worker:running"
    WORKER_STOPPING = "worker:stopping"
    WORKER_STOPPED = "worker:stopped"
    WORKER_ERROR = "worker:error"
    POLLING_STARTING = "polling:starting"
    POLLING_SUCCESS = "polling:success"
    POLLING_ERROR = "polling:error"
    TASK_RECEIVED = "task:received"
    TASK_START = "task:start"
    TASK_HEARTBEAT = "task:heartbeat"
    TASK_SUCCESS = "task:success"
    TASK_FAILURE = "task:failure"
    TASK_ERRORED = "task:errored"
    TASK_DONE = "task:done"


class WorkerState(StrEnum):
    """What a worker (one pod) says of itself. `drained` is terminal: the pod waits to be removed."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    DRAINED = "drained"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Directive(StrEnum):
    """What the operator tells a worker to do: take tasks, drain, or keep the state that it reported.

    `STANDBY`: run and claim leases, but open no poll, for as long as replies say so.
    A worker of this version reads a directive that it does not know as `KEEP`. Versions up to 0.1 read it as `RUN`, so
    the operator sends `for_state(state)` instead of `KEEP`.
    """

    RUN = "run"
    DRAIN = "drain"
    KEEP = "keep"
    STANDBY = "standby"

    def for_state(self, state: WorkerState) -> "Directive":
        """Return `RUN` or `DRAIN` with the same effect on a worker that reports `state`. Every version knows both."""
        if self is not Directive.KEEP:
            return self
        return Directive.RUN if state in {WorkerState.STARTING, WorkerState.RUNNING} else Directive.DRAIN


@functools.lru_cache(maxsize=1024)
def lease_id(task_token: str) -> str:
    """Return the name by which both sides speak of a task without showing its token (32 hex characters)."""
    return hashlib.sha256(task_token.encode()).hexdigest()[:32]
