"""Where the tasks come from: one member of `source` for each kind of task service."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from activity_operator.api import rules, source_rules
from activity_operator.api.arn import MAX_ARN_LENGTH
from activity_operator.api.model import ApiModel, Int32

ActivityArnText = Annotated[str, Field(max_length=MAX_ARN_LENGTH, json_schema_extra=rules.attach(rules.ACTIVITY_ARN))]


class SecretKeyRef(ApiModel):
    """A key of a Secret in the pool's own namespace."""

    name: str = Field(
        min_length=1,
        max_length=253,
        json_schema_extra=rules.attach(source_rules.SECRET_NAME),
        description="Name of the Secret, in the pool's namespace.",
    )
    key: str = Field(
        min_length=1,
        max_length=253,
        json_schema_extra=rules.attach(source_rules.SECRET_KEY),
        description="Key in the Secret's data.",
    )


class StepFunctionsSourceSpec(ApiModel):
    """Tasks of an AWS Step Functions activity."""

    activity_arn: ActivityArnText = Field(
        description="ARN of the activity whose tasks the workers take. Cannot be changed: make a new pool instead."
    )


class SwfSourceSpec(ApiModel):
    """Activity tasks of one task list of an Amazon SWF domain."""

    domain: str = Field(
        min_length=1,
        max_length=256,
        json_schema_extra=rules.attach(source_rules.SWF_NAME),
        description="Name of the domain, in spec.aws.region. Cannot be changed: make a new pool instead.",
    )
    task_list: str = Field(
        min_length=1,
        max_length=256,
        json_schema_extra=rules.attach(source_rules.SWF_NAME),
        description="Name of the task list whose activity tasks the workers take. Cannot be changed: make a new pool "
        "instead.",
    )
    register_activity_types: bool = Field(
        default=False,
        description="true: a worker registers the activity types that its handlers name when it starts (default "
        "false). The workers need swf:RegisterActivityType then.",
    )
    poll_at_zero: bool = Field(
        default=False,
        description="true: while no worker is ready, the operator also polls the task list, and hands what it gets to "
        "the first worker (default false: it counts and takes no task). A start from zero then does not wait for the "
        "next count. The operator needs the rights of a worker.",
    )


class RedisSourceSpec(ApiModel):
    """Jobs of one queue of a flow, on a Redis server."""

    model_config = ConfigDict(json_schema_extra=rules.attach(source_rules.REDIS))

    url_secret_ref: SecretKeyRef | None = Field(
        default=None,
        description="Secret key that holds the server's URL, with user and password if it needs them, such as "
        "rediss://user:password@redis:6379/0. Either this or address. Workers get it as an environment variable; the "
        "operator must be allowed to read the Secret.",
    )
    address: str | None = Field(
        default=None,
        max_length=255,
        json_schema_extra=rules.attach(source_rules.ADDRESS),
        description="HOST:PORT of a server without password and TLS. Either this or urlSecretRef.",
    )
    flow: str = Field(
        min_length=1,
        max_length=128,
        json_schema_extra=rules.attach(source_rules.REDIS_NAME),
        description="Name of the flow that the jobs belong to.",
    )
    queue: str = Field(
        min_length=1,
        max_length=128,
        json_schema_extra=rules.attach(source_rules.REDIS_NAME),
        description="Name of the queue whose jobs the workers take.",
    )
    next_queue: str = Field(
        default="",
        max_length=128,
        json_schema_extra=rules.attach(source_rules.REDIS_NEXT_QUEUE),
        description="Queue into which a job goes whose result names none (default none: the job has arrived).",
    )
    attributes: list[Annotated[str, Field(min_length=1, max_length=128)]] = Field(
        default_factory=list,
        max_length=100,
        json_schema_extra=rules.attach(source_rules.REDIS_ATTRIBUTES),
        description="Fields of a job that the handler gets, beside its id (default none).",
    )
    lock_seconds: Int32 = Field(
        default=180,
        ge=1,
        le=86_400,
        description="Seconds for which a job is its worker's (default 180). Unless renewLock is true they are also "
        "the handler's deadline.",
    )
    renew_lock: bool = Field(
        default=False,
        description="true: the lock is prolonged while the handler works, at taskHeartbeat.intervalSeconds (default "
        "false, as the dialect has it).",
    )
    block_seconds: Int32 = Field(
        default=3,
        ge=1,
        le=60,
        description="Seconds for which a worker's poll waits for a job (default 3). A worker that stops waits for its "
        "open polls.",
    )
    conclude: Literal["Dialect", "Atomic"] = Field(
        default="Dialect",
        description="Dialect (default): jobs are taken and concluded with the commands of the published dialect. "
        "Atomic: with scripts on the server, each of them at once, so that no crash leaves a job halfway.",
    )


class TaskStoreSourceSpec(ApiModel):
    """Durable multi-step tasks in a PostgreSQL database; the workers are their runners."""

    model_config = ConfigDict(json_schema_extra=rules.attach(source_rules.TASK_STORE))

    url_secret_ref: SecretKeyRef | None = Field(
        default=None,
        description="Secret key that holds the database's URL, such as postgresql://user:password@db:5432/tasks. "
        "Either this or url. Workers get it as an environment variable; the operator must be allowed to read the "
        "Secret.",
    )
    url: str | None = Field(
        default=None,
        max_length=512,
        json_schema_extra=rules.attach(source_rules.STORE_URL),
        description="URL of a PostgreSQL database that asks for no password, such as postgresql://tasks@db:5432/tasks. "
        "Either this or urlSecretRef.",
    )
    tasks: list[Annotated[str, Field(min_length=1, max_length=255)]] = Field(
        default_factory=list,
        max_length=100,
        json_schema_extra=rules.attach(source_rules.STORE_TASKS),
        description="Names of the tasks whose due instances count as backlog (default: all in the store). Name them "
        "where several pools share a store.",
    )
    lease_seconds: Int32 = Field(
        default=60,
        ge=1,
        le=86_400,
        description="Seconds after which another worker goes on with an instance whose worker fell silent (default "
        "60).",
    )


class TaskbrokerSourceSpec(ApiModel):
    """Tasks of one or more taskbrokers, of one application or one task namespace if these are set."""

    model_config = ConfigDict(json_schema_extra=rules.attach(source_rules.TASKBROKER))

    addresses: list[Annotated[str, Field(min_length=1, max_length=255)]] = Field(
        min_length=1,
        max_length=20,
        json_schema_extra={"x-kubernetes-list-type": "set", **rules.attach(source_rules.BROKER_ADDRESSES)},
        description="HOST:PORT of each taskbroker, such as taskbroker:50051. Brokers that share a store have one "
        "address together, that of their Service.",
    )
    application: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        json_schema_extra=rules.attach(source_rules.BROKER_NAME),
        description="Application whose tasks the workers take. Unset (default): of every application.",
    )
    namespace: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        json_schema_extra=rules.attach(source_rules.BROKER_NAME),
        description="Task namespace whose tasks the workers take; it is none of the cluster's. Unset (default): of "
        "every task namespace.",
    )
    signing_secret_ref: SecretKeyRef | None = Field(
        default=None,
        description='Secret key that holds the secrets of signed calls, a JSON list such as ["new", "old"]; the first '
        "signs. Unset (default): calls are not signed. The operator must be allowed to read the Secret.",
    )
    tls: bool = Field(
        default=False,
        description="true: the brokers speak TLS, and their certificates are checked (default false).",
    )
    ca_secret_ref: SecretKeyRef | None = Field(
        default=None,
        description="Secret key that holds the certificate of the authority that signs the brokers' certificates, in "
        "PEM. Needs tls. Unset (default): the authorities of the images. The operator must be allowed to read the "
        "Secret.",
    )
    delivery: Literal["Pull", "Push"] = Field(
        default="Pull",
        description="Pull (default): the workers ask for tasks. Push: the brokers push tasks to port 50052 of the "
        "workers, which enter the brokers' worker maps. Push needs signingSecretRef.",
    )
    push_tls_secret_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        json_schema_extra=rules.attach(source_rules.SECRET_NAME),
        description="Secret of type kubernetes.io/tls, in the pool's namespace, with which the workers take pushes. "
        "Needs delivery Push. Unset (default): pushes have no TLS.",
    )


class SourceSpec(ApiModel):
    """Where the tasks come from: exactly one member."""

    model_config = ConfigDict(json_schema_extra=rules.attach(rules.SOURCE))

    step_functions: StepFunctionsSourceSpec | None = Field(
        default=None, description="Tasks of an AWS Step Functions activity; the long form of activityArn."
    )
    swf: SwfSourceSpec | None = Field(default=None, description="Activity tasks of a task list of Amazon SWF.")
    redis: RedisSourceSpec | None = Field(default=None, description="Jobs of a queue on a Redis server.")
    task_store: TaskStoreSourceSpec | None = Field(
        default=None, description="Durable multi-step tasks in a PostgreSQL database."
    )
    taskbroker: TaskbrokerSourceSpec | None = Field(default=None, description="Tasks of a taskbroker.")


class PrometheusSpec(ApiModel):
    """A number of waiting tasks that a Prometheus server tells."""

    server_url: str = Field(
        max_length=512,
        json_schema_extra=rules.attach(source_rules.SERVER_URL),
        description="URL of the Prometheus server, without the path /api/v1. The administrator's tenancy policy must "
        "allow it as an endpoint.",
    )
    query: str = Field(
        min_length=1,
        max_length=2048,
        description="PromQL whose result is one number: how many tasks wait. No result means that nobody knows, and "
        "the pool keeps its size: write 'or vector(0)' where it means none.",
    )
    interval_seconds: Int32 = Field(
        default=15,
        ge=1,
        le=3600,
        description="Seconds between two queries (default 15).",
    )
    token_secret_ref: SecretKeyRef | None = Field(
        default=None,
        description="Secret key that holds a bearer token for the server. Unset (default): none is sent.",
    )


SourceKind = Literal["stepFunctions", "swf", "redis", "taskStore", "taskbroker"]
