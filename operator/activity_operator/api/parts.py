"""The parts of an ActivityPool's spec: each group of fields with its units, bounds and defaults."""

from typing import Literal

from pydantic import Field

from activity_operator.api import rules
from activity_operator.api.model import ApiModel, Int32
from activity_operator.api.scaling_options import Schedule, Throughput
from activity_operator.api.sources import PrometheusSpec

DAY_SECONDS = 86_400


class ScaleDown(ApiModel):
    """How slowly a pool shrinks."""

    stabilization_window_seconds: Int32 | None = Field(
        default=None,
        ge=0,
        le=3600,
        description="Seconds over which the highest wanted size holds before the pool shrinks to it, so that a short "
        "lull removes no workers. Unset (default): eight times the measured start of a pod, 20 to 60, in which the "
        "surplus leaves in ten steps; 50 without steps on Step Functions where activation.mode is not Sentinel: all "
        "idle workers poll there.",
    )
    zero_after_seconds: Int32 | None = Field(
        default=None,
        ge=0,
        le=DAY_SECONDS,
        description="Seconds without any task, waiting or running, before a pool with minWorkers 0 goes to zero, "
        "because starting from zero costs a pod start. Unset (default): twenty times the measured start of a pod, "
        "50 to 230.",
    )
    max_pods_per_minute: Int32 | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="Most workers by which the size falls within a minute. Unset (default): no limit.",
    )
    max_percent: Int32 | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Most workers by which the size falls within a minute, as a percentage of the largest size in it, "
        "and at least one. With maxPodsPerMinute the stricter one applies. Unset (default): no limit.",
    )


class Scaling(ApiModel):
    """How demand becomes a number of workers."""

    target_utilization: float = Field(
        default=1.0,
        ge=0.01,
        le=1.0,
        json_schema_extra=rules.attach(rules.TARGET_UTILIZATION),
        description="Share of all slots that tasks should fill, 0.01 to 1 (default 1.0). Lower keeps idle workers "
        "ready for the next task.",
    )
    target_wait_seconds: Int32 | None = Field(
        default=None,
        ge=0,
        le=3600,
        description="Seconds that a task may wait for a slot that becomes free, beyond the start of a pod. Many short "
        "tasks share the slots that they start. 0: a slot for each task. Unset (default): three fifths of "
        "the measured start of a pod, at most 10.",
    )
    scale_down: ScaleDown = Field(default_factory=ScaleDown, description="How slowly the pool shrinks.")
    mode: Literal["Auto", "Recommend"] = Field(
        default="Auto",
        description="Auto (default): the operator sets the size. Recommend: it says in the status which size it would "
        "set, and writes nothing to Deployments and pods, unless replicas or paused is set.",
    )
    freeze: Literal["None", "ScaleUp", "ScaleDown", "Both"] = Field(
        default="None",
        description="What the pool must not do: ScaleUp, ScaleDown, or Both. None (default): nothing is frozen. "
        "minWorkers, maxWorkers, replicas and paused still apply.",
    )
    schedules: list[Schedule] = Field(
        default=[],
        max_length=20,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        description="Other minWorkers and maxWorkers at certain times (default none). The first one that is active "
        "applies.",
    )
    activation_threshold: Int32 = Field(
        default=0,
        ge=0,
        description="Tasks that may wait while the pool is at zero: it starts when more wait (default 0). Needs a "
        "count of the tasks.",
    )
    idle_workers: Int32 = Field(
        default=0,
        ge=0,
        le=1000,
        description="Workers beyond those that the tasks need, as a reserve for the next tasks (default 0), also "
        "when there is no task.",
    )
    throughput: Throughput | None = Field(
        default=None,
        description="A least size for the rate at which tasks have come. Unset (default): none.",
    )
    prometheus: PrometheusSpec | None = Field(
        default=None,
        description="A Prometheus query for the number of waiting tasks, beside what the source tells itself: the pool "
        "is never smaller than either asks for. Unset (default): none.",
    )


class ReportsSpec(ApiModel):
    """What is expected of the workers' reports."""

    timeout_seconds: Int32 = Field(
        default=60,
        ge=5,
        le=3600,
        description="Seconds without a report after which a worker counts as stalled (default 60): it is no free "
        "capacity then and holds the pool above zero. Never less than three report intervals.",
    )


class Stalled(ApiModel):
    """What happens to workers that went silent."""

    deadline_seconds: Int32 = Field(
        default=300,
        ge=10,
        le=DAY_SECONDS,
        description="Seconds after which a worker that is stalled and not Ready is deleted and replaced (default "
        "300). A Ready one is left alone: it may be working.",
    )


class TaskHeartbeatSpec(ApiModel):
    """The heartbeats of running tasks."""

    interval_seconds: Int32 = Field(
        default=10,
        ge=1,
        le=3600,
        description="Seconds between two heartbeats of a running task (default 10), sent whatever the handler does. "
        "Set HeartbeatSeconds in the state machine to at least three times this.",
    )


class Drain(ApiModel):
    """How a worker leaves."""

    timeout_seconds: Int32 = Field(
        default=1800,
        ge=0,
        le=7 * DAY_SECONDS,
        description="Seconds a worker may take to finish its tasks when its pod is deleted (default 1800). After "
        "that they fail with ActivityPool.WorkerStopped, for the state machine's Retry. Scaling down never cuts.",
    )


class HandlerSpec(ApiModel):
    """What becomes of a handler that raises or is cancelled."""

    on_error: Literal["Fail", "Leave"] = Field(
        default="Fail",
        description="What a worker does with the task of a handler that raised. Fail (default): it fails the task, "
        "with the error's name and cause. Leave: it sends nothing, and the task ends by its own time-out.",
    )
    cancel_grace_seconds: Int32 = Field(
        default=5,
        ge=0,
        le=600,
        description="Seconds that a cancelled handler has to end (default 5). Its process is killed a little sooner.",
    )


class Polling(ApiModel):
    """What a worker does when its polls fail."""

    failure_threshold: Int32 | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="Polls that may fail in a row: then the worker ends with code 10, and the kubelet starts it again. "
        "Throttling is no failure. Unset (default): a worker polls on, however many fail.",
    )
    max_pause_seconds: Int32 = Field(
        default=30,
        ge=1,
        le=3600,
        description="Longest pause in seconds after a failed poll (default 30). Pauses begin with 1 s and grow.",
    )


class Logging(ApiModel):
    """What the workers log."""

    level: Literal["Debug", "Info", "Warning", "Error"] = Field(
        default="Info",
        description="Least level of the log lines of the workers and of their handlers (default Info).",
    )
    format: Literal["Json", "Text"] = Field(
        default="Json",
        description="Json (default): an object a line, with keys such as lease, pool and slot. Text: for people.",
    )
    failures: Literal["Traceback", "Message", "Name"] = Field(
        default="Traceback",
        description="How much the line of a failed task says. Traceback (default): the error's name, its message and "
        "the handler's traceback. Message: name and message. Name: the name alone, for handlers whose messages have "
        "data. The cause that the service gets stays whole.",
    )


class Rollout(ApiModel):
    """When a new revision is stopped because its tasks fail."""

    max_failure_share: float | None = Field(
        default=None,
        ge=0.0,
        le=1.0,
        description="Share of failed tasks, 0 to 1, above which a new revision is stopped if it also fails more than "
        "the old one. Unset (default): a new revision is judged by its first report alone.",
    )
    canary_tasks: Int32 = Field(
        default=10,
        ge=1,
        le=1000,
        description="Tasks that the first worker of a new revision concludes before others follow (default 10). "
        "Needs maxFailureShare.",
    )
    canary_seconds: Int32 = Field(
        default=300,
        ge=0,
        le=3600,
        description="Longest time in seconds for these tasks (default 300): with little work the others follow "
        "after it.",
    )
    on_failure: Literal["Stop", "Rollback"] = Field(
        default="Stop",
        description="Stop (default): one worker of a stopped revision stays, for a look at it. Rollback: none stays.",
    )


class Activation(ApiModel):
    """How work is noticed while no worker runs."""

    mode: Literal["Sentinel", "CloudWatch", "None"] = Field(
        default="Sentinel",
        description="Sentinel (default): while no worker is ready the operator itself polls, and hands what it gets "
        "to the first worker; where the source can be counted, it counts and never polls. CloudWatch (Step Functions "
        "only): it never polls and sees no payload; it reads the activity's counts once a minute, so a start from zero "
        "comes minutes late. None: the operator does not ask the source at all; minWorkers must be at least 1, unless "
        "scaling.prometheus counts the tasks.",
    )
    hold_seconds: Int32 | None = Field(
        default=None,
        ge=1,
        le=7 * DAY_SECONDS,
        description="Seconds for which the operator keeps a task alive that no worker takes; then it fails with "
        "ActivityPool.NoWorker. No time counts while the spec lets no worker come (paused, replicas 0, a schedule with "
        "maxWorkers 0). Unset (default): until the service's own time-out ends it.",
    )


class Aws(ApiModel):
    """How AWS is reached."""

    region: str | None = Field(
        default=None,
        max_length=64,
        json_schema_extra=rules.attach(rules.REGION),
        description="Region of the API calls. Unset (default): the region in the ARN. Required for source.swf.",
    )
    endpoint_url: str | None = Field(
        default=None,
        max_length=512,
        json_schema_extra=rules.attach(rules.ENDPOINT_URL),
        description="URL of the Step Functions or SWF endpoint, for emulators and private endpoints. Unset (default): "
        "the public one of the region. The administrator's tenancy policy must allow it.",
    )
    cloud_watch_endpoint_url: str | None = Field(
        default=None,
        max_length=512,
        json_schema_extra=rules.attach(rules.CLOUDWATCH_ENDPOINT_URL),
        description="URL of the CloudWatch endpoint for activation.mode CloudWatch. Unset (default): the public one of "
        "the region, whatever endpointUrl says. The administrator's tenancy policy must allow it.",
    )
    role_arn: str | None = Field(
        default=None,
        max_length=2048,
        json_schema_extra=rules.attach(rules.ROLE_ARN),
        description="ARN of an IAM role that the operator assumes for its own calls for this pool, with an external "
        "id of cluster/namespace. Unset (default): the operator's own identity. Workers use their ServiceAccount's.",
    )
