"""The spec of an ActivityPool. The CRD's schema is generated from it (`schema`)."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, Field, ValidationError

from activity_operator.api import rules, scaling_rules, source_rules
from activity_operator.api.arn import ActivityArn, arn_problems, parse_activity_arn
from activity_operator.api.cron import next_time, time_zone
from activity_operator.api.errors import SpecError
from activity_operator.api.model import ApiModel, Int32
from activity_operator.api.parts import (
    DAY_SECONDS,
    Activation,
    Aws,
    Drain,
    HandlerSpec,
    Logging,
    Polling,
    ReportsSpec,
    Rollout,
    ScaleDown,
    Scaling,
    Stalled,
    TaskHeartbeatSpec,
)
from activity_operator.api.pod_template import POD_TEMPLATE_SCHEMA, check_pod_template
from activity_operator.api.scaling_options import Schedule, Throughput
from activity_operator.api.sources import (
    ActivityArnText,
    PrometheusSpec,
    RedisSourceSpec,
    SecretKeyRef,
    SourceKind,
    SourceSpec,
    StepFunctionsSourceSpec,
    SwfSourceSpec,
    TaskbrokerSourceSpec,
    TaskStoreSourceSpec,
)

__all__ = [
    "Activation",
    "Aws",
    "Drain",
    "HandlerSpec",
    "Logging",
    "Polling",
    "PoolSpec",
    "PrometheusSpec",
    "RedisSourceSpec",
    "ReportsSpec",
    "Rollout",
    "ScaleDown",
    "Scaling",
    "Schedule",
    "SecretKeyRef",
    "SourceKind",
    "SourceSpec",
    "SpecError",
    "Stalled",
    "StepFunctionsSourceSpec",
    "SwfSourceSpec",
    "TaskHeartbeatSpec",
    "TaskStoreSourceSpec",
    "TaskbrokerSourceSpec",
    "Throughput",
    "parse_spec",
]


class PoolSpec(ApiModel):
    """What the pool works on, with which image, and how many workers it may have."""

    model_config = ConfigDict(json_schema_extra=rules.attach((*rules.SPEC, *scaling_rules.SPEC)))

    activity_arn: ActivityArnText | None = Field(
        default=None,
        description="ARN of the Step Functions activity whose tasks the workers take. Either this or source. Cannot "
        "be changed: make a new pool instead.",
    )
    source: SourceSpec | None = Field(
        default=None, description="Where the tasks come from, with exactly one member. Either this or activityArn."
    )
    handler_image: str = Field(
        min_length=1,
        max_length=512,
        json_schema_extra=rules.attach(rules.IMAGE),
        description="Container image with the worker runtime and your handler. A new image rolls out worker by "
        "worker, after the tasks they have; the old one keeps serving if the new one never starts.",
    )
    min_workers: Int32 = Field(
        default=0,
        ge=0,
        le=1000,
        description="Fewest workers (pods), 0 to 1000 (default 0: no cost while there is no work).",
    )
    max_workers: Int32 = Field(
        ge=1,
        le=1000,
        description="Most workers (pods), 1 to 1000. Always holds, also for replicas and kubectl scale. During a "
        "rollout, workers that still finish their tasks come on top.",
    )
    slots_per_worker: Int32 = Field(
        default=1,
        ge=1,
        le=100,
        description="Tasks that one worker runs at the same time, 1 to 100 (default 1), each with its own poll and "
        "its own process.",
    )
    replicas: Int32 | None = Field(
        default=None,
        ge=0,
        description="Pins the number of workers, at most maxWorkers, also below minWorkers: written by kubectl "
        "scale or an autoscaler of your own. Unset (no default): this operator decides. Remove it to hand back.",
    )
    paused: bool = Field(
        default=False,
        description="true: workers finish their tasks and leave, and no new task is taken until it is false again "
        "(default false). Beats replicas and minWorkers.",
    )
    scaling: Scaling = Field(default_factory=Scaling, description="How demand becomes a number of workers.")
    reports: ReportsSpec = Field(default_factory=ReportsSpec, description="What is expected of the workers' reports.")
    stalled: Stalled = Field(default_factory=Stalled, description="What happens to workers that went silent.")
    task_heartbeat: TaskHeartbeatSpec = Field(
        default_factory=TaskHeartbeatSpec, description="The heartbeats of running tasks."
    )
    task_deadline_seconds: Int32 | None = Field(
        default=None,
        ge=1,
        le=365 * DAY_SECONDS,
        description="Seconds after which a task's handler is killed and the task fails. Unset (default): no "
        "deadline besides the state machine's own TimeoutSeconds.",
    )
    drain: Drain = Field(default_factory=Drain, description="How a worker leaves.")
    handler: HandlerSpec = Field(
        default_factory=HandlerSpec,
        description="What becomes of a handler that raises or is cancelled. A change replaces the workers, worker by "
        "worker.",
    )
    polling: Polling = Field(
        default_factory=Polling,
        description="What a worker does when its polls fail. A change replaces the workers, worker by worker.",
    )
    logging: Logging = Field(
        default_factory=Logging, description="What the workers log. A change replaces them, worker by worker."
    )
    rollout: Rollout = Field(default_factory=Rollout, description="When a new revision is stopped.")
    activation: Activation = Field(default_factory=Activation, description="How work is noticed while no worker runs.")
    aws: Aws = Field(
        default_factory=Aws,
        description="How AWS is reached. Unset (default): as the ARN says. Amazon SWF needs aws.region.",
    )
    service_account_name: str | None = Field(
        default=None,
        max_length=253,
        json_schema_extra=rules.attach(rules.SERVICE_ACCOUNT_NAME),
        description="ServiceAccount of the workers, for their AWS credentials (IRSA or Pod Identity). It needs no "
        "RBAC. Unset (default): the namespace's default one.",
    )
    pod_template: dict[str, Any] = Field(
        default_factory=dict,
        json_schema_extra=POD_TEMPLATE_SCHEMA,
        description="Additions to the workers' pods: metadata.labels, metadata.annotations and a pod spec (default "
        "none). The container named worker is the handler's: resources, env and volumeMounts go there. Labels and "
        "annotations under activitypools.dev/ are ours. The pod must stay restricted (Pod Security Standards).",
    )

    @property
    def arn(self) -> str:
        """The activity's ARN, from `activityArn` or `source`; "" for another source."""
        if self.activity_arn is not None:
            return self.activity_arn
        if self.source is not None and self.source.step_functions is not None:
            return self.source.step_functions.activity_arn
        return ""

    @property
    def arn_field(self) -> str:
        """The field of `spec` that holds the activity's ARN."""
        return "activityArn" if self.source is None else "source.stepFunctions.activityArn"

    @property
    def activity(self) -> ActivityArn:
        """The parts of the ARN. Raises MalformedArnError if it is malformed; `parse_spec` checks that before."""
        return parse_activity_arn(self.arn)

    @property
    def region(self) -> str:
        """The region of the API calls: `aws.region`, else the ARN's. Amazon SWF has no ARN and needs `aws.region`."""
        return self.aws.region or self.activity.region

    @property
    def swf(self) -> SwfSourceSpec | None:
        """The task list of Amazon SWF, None if the source is another one."""
        return None if self.source is None else self.source.swf

    @property
    def redis(self) -> RedisSourceSpec | None:
        """The Redis queue, None if the source is another one."""
        return None if self.source is None else self.source.redis

    @property
    def task_store(self) -> TaskStoreSourceSpec | None:
        """The task store, None if the source is another one."""
        return None if self.source is None else self.source.task_store

    @property
    def taskbroker(self) -> TaskbrokerSourceSpec | None:
        """The taskbrokers, None if the source is another one."""
        return None if self.source is None else self.source.taskbroker

    @property
    def source_kind(self) -> SourceKind:
        """The member of `source` that is set; stepFunctions for `activityArn`."""
        if self.swf is not None:
            return "swf"
        if self.redis is not None:
            return "redis"
        if self.taskbroker is not None:
            return "taskbroker"
        return "taskStore" if self.task_store is not None else "stepFunctions"

    @property
    def on_aws(self) -> bool:
        """Whether the source is a service of AWS, which workers and the operator poll."""
        return self.source_kind in {"stepFunctions", "swf"}

    def identity(self, namespace: str) -> str:
        """Return a text that identifies the source: pools with the same text take each other's tasks.

        A Secret's name stands for the server in its URL, so the text then has the `namespace` as well.
        """
        if self.swf is not None:
            place = f"{self.region} at {self.aws.endpoint_url}" if self.aws.endpoint_url else self.region
            return f"task list {self.swf.task_list} of domain {self.swf.domain} in {place}"
        if self.redis is not None:
            server = self.redis.address or _in(namespace, self.redis.url_secret_ref)
            return f"queue {self.redis.queue} of flow {self.redis.flow} on {server}"
        if self.task_store is not None:
            store = self.task_store.url or _in(namespace, self.task_store.url_secret_ref)
            return f"tasks {', '.join(sorted(self.task_store.tasks)) or '*'} in {store}"
        if self.taskbroker is not None:
            broker = self.taskbroker
            tasks = f"namespace {broker.namespace or '*'}, application {broker.application or '*'}"
            return f"tasks of {tasks} at {', '.join(sorted(broker.addresses))}"
        return self.arn

    @property
    def url_secret_ref(self) -> SecretKeyRef | None:
        """The Secret key that holds the source's URL, None if no Secret does."""
        source = self.redis or self.task_store
        return None if source is None else source.url_secret_ref


def _in(namespace: str, secret: SecretKeyRef | None) -> str:
    return "" if secret is None else f"{namespace}/{secret.name}/{secret.key}"


def parse_spec(raw: Mapping[str, Any]) -> PoolSpec:
    """Return the spec of a pool from the API server, with defaults filled in.

    Raises SpecError with field, value and fix. It covers the pod template, which the CRD's rules cannot check, and also
    the errors that the rules find, because an object may be older than the rules.
    """
    try:
        spec = PoolSpec.model_validate(raw)
    except ValidationError as error:
        raise _as_spec_error(error) from error
    if not re.fullmatch(rules.IMAGE_PATTERN, spec.handler_image):
        raise SpecError("handlerImage", spec.handler_image, rules.IMAGE_FIX)
    _check_source(spec)
    _check_sizes(spec)
    for schedule in spec.scaling.schedules:
        _check_schedule(spec, schedule)
    check_pod_template(spec.pod_template)
    return spec


def _as_spec_error(error: ValidationError) -> SpecError:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "spec"
    if first["type"] == "missing":
        return SpecError(field, None, "is required")
    return SpecError(field, first["input"], first["msg"].replace("Input should", "must"))


def _check_source(spec: PoolSpec) -> None:
    if spec.activity_arn is not None and spec.source is not None:
        raise SpecError("source", "", "is set beside activityArn; keep exactly one of them")
    if spec.activity_arn is None and spec.source is None:
        raise SpecError("activityArn", None, "is not set, and neither is source; set exactly one of them")
    if spec.source is not None:
        members = (spec.source.step_functions, spec.swf, spec.redis, spec.task_store, spec.taskbroker)
        given = [member for member in members if member is not None]
        if len(given) != 1:
            raise SpecError("source", "", f"needs exactly one member of: {', '.join(rules.SOURCE_MEMBERS)}")
    if spec.source_kind != "stepFunctions":
        _check_counted(spec)
        return
    for problem in arn_problems(spec.arn):
        raise SpecError(spec.arn_field, spec.arn, problem)


def _check_counted(spec: PoolSpec) -> None:
    if spec.swf is not None and not spec.aws.region:
        raise SpecError("aws.region", None, "is required for source.swf; write the domain's region, such as us-east-1")
    if spec.redis is not None and (spec.redis.url_secret_ref is None) == (spec.redis.address is None):
        raise SpecError("source.redis", "", "needs exactly one of urlSecretRef and address")
    if spec.task_store is not None and (spec.task_store.url_secret_ref is None) == (spec.task_store.url is None):
        raise SpecError("source.taskStore", "", "needs exactly one of urlSecretRef and url")
    if spec.taskbroker is not None and spec.taskbroker.ca_secret_ref is not None and not spec.taskbroker.tls:
        raise SpecError("source.taskbroker.caSecretRef", "", "needs tls: set tls to true, or remove caSecretRef")
    if spec.taskbroker is not None:
        _check_delivery(spec.taskbroker)
    if spec.activation.mode == "CloudWatch":
        raise SpecError("activation.mode", "CloudWatch", "counts Step Functions activities only; remove it")


def _check_delivery(broker: TaskbrokerSourceSpec) -> None:
    if broker.delivery == "Push" and broker.signing_secret_ref is None:
        raise SpecError("source.taskbroker.delivery", "Push", source_rules.PUSH_NEEDS_SECRETS)
    if broker.delivery != "Push" and broker.push_tls_secret_name is not None:
        raise SpecError("source.taskbroker.pushTlsSecretName", "", source_rules.NEEDS_PUSH)


def _check_sizes(spec: PoolSpec) -> None:
    if spec.min_workers > spec.max_workers:
        fix = f"is greater than maxWorkers {spec.max_workers}; lower it or raise maxWorkers"
        raise SpecError("minWorkers", spec.min_workers, fix)
    if spec.activation.mode == "None" and spec.min_workers == 0 and spec.scaling.prometheus is None:
        raise SpecError("minWorkers", 0, "must be at least 1 with activation.mode None, without scaling.prometheus")
    threshold, idle = spec.scaling.activation_threshold, spec.scaling.idle_workers
    polled = spec.source_kind == "stepFunctions" and spec.activation.mode != "CloudWatch"
    if threshold and (polled or (spec.swf is not None and spec.swf.poll_at_zero)):
        raise SpecError("scaling.activationThreshold", threshold, scaling_rules.NEEDS_COUNT)
    if threshold and (spec.min_workers or idle):
        raise SpecError("scaling.activationThreshold", threshold, scaling_rules.NEEDS_ZERO)
    if idle > spec.max_workers:
        fix = f"is greater than maxWorkers {spec.max_workers}; lower it or raise maxWorkers"
        raise SpecError("scaling.idleWorkers", idle, fix)


def _check_schedule(spec: PoolSpec, schedule: Schedule) -> None:
    field = f"scaling.schedules[{schedule.name}]"
    crons, times = (schedule.start_cron, schedule.end_cron), (schedule.start_time, schedule.end_time)
    if crons.count(None) == 1 or times.count(None) == 1 or (crons[0] is None) == (times[0] is None):
        raise SpecError(field, "", scaling_rules.NEEDS_TIMES)
    if times[0] is not None and times[1] is not None and times[0] >= times[1]:
        raise SpecError(f"{field}.endTime", times[1].isoformat(), "must be after startTime")
    sizes = [size for size in (schedule.min_workers, schedule.max_workers) if size is not None]
    if not sizes:
        raise SpecError(field, "", scaling_rules.NEEDS_LIMIT)
    if max(sizes) > spec.max_workers:
        raise SpecError(field, max(sizes), scaling_rules.ABOVE_MAX)
    if sizes[0] > sizes[-1]:
        raise SpecError(f"{field}.minWorkers", sizes[0], f"is greater than maxWorkers {sizes[-1]} of the schedule")
    if spec.activation.mode == "None" and min(sizes) == 0 and spec.scaling.prometheus is None:
        raise SpecError(field, 0, "must be at least 1 worker with activation.mode None")
    try:
        time_zone(schedule.time_zone)
    except ValueError as error:
        raise SpecError(f"{field}.timeZone", schedule.time_zone, str(error)) from error
    for name, cron in zip(("startCron", "endCron"), crons, strict=True):
        _check_cron(f"{field}.{name}", cron, schedule.time_zone)


def _check_cron(field: str, cron: str | None, zone: str) -> None:
    if cron is None:
        return
    try:
        first = next_time(cron, zone, 0.0)
    except ValueError as error:
        raise SpecError(field, cron, str(error)) from error
    if first is None:
        raise SpecError(field, cron, "is a time that never comes; correct its day or month")
