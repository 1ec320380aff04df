"""What is seen of one pool at one moment: frozen facts, including `now`. Nothing here asks anybody anything."""

from dataclasses import dataclass, field

from activity_worker.contract import PollTrouble, WorkerState


@dataclass(frozen=True, slots=True)
class BacklogCount:
    """How many tasks wait, as counted at `observed_at` (Unix seconds).

    `exact`: the source itself counted, a moment ago, tasks that no worker has. Otherwise it is a lower bound, perhaps
    minutes old: at least so many were waiting, and some of them may run by now.
    `with_running`: tasks that workers have are counted too, also those whose worker is dead.
    """

    tasks: int
    exact: bool
    observed_at: float
    with_running: bool = False


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """The resource's identity.

    `generation` is metadata.generation; `deleting` once it has a deletionTimestamp; `proven_revision` is the status's:
    the last template revision of which a worker ever reported. `emptied_at` is a moment at which by the status nothing
    waited, Unix seconds, 0 when it tells of none.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    deleting: bool = False
    proven_revision: str = ""
    emptied_at: float = 0.0


@dataclass(frozen=True, slots=True)
class DeploymentFacts:
    """One revision's Deployment as the watch last showed it.

    `rendered_generation` is the pool generation it was rendered for; `drifted` says that fields we own differ from what
    we applied (somebody edited it); `outdated` that another version of the operator, or one with other settings,
    rendered it for this same generation; `failure` is the message of its ReplicaFailure condition (quota, admission).
    `scaled_by` and `edited_by` are the field managers, other than us, that wrote its replicas, or anything else, last.
    """

    name: str
    uid: str
    resource_version: str
    revision: str
    rendered_generation: int
    replicas: int
    created: float = 0.0
    drifted: bool = False
    outdated: bool = False
    deleting: bool = False
    failure: str = ""
    failure_reason: str = ""
    scaled_by: str = ""
    edited_by: str = ""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One worker's pod as the watch last showed it. Times are Unix seconds; `deletion_cost` None means unset.

    `running_since` is 0 unless the worker container runs now; `waiting_reason` is that container's (ImagePullBackOff,
    CrashLoopBackOff …); `last_exit_code` and `last_exit_reason` (Error, OOMKilled, Completed) are of its last
    termination; `unschedulable` is the scheduler's message; `untaken_since` is since when the pod has been on a node
    whose kubelet has not begun with it, `unprepared_since` since when that has been getting volumes and network ready;
    each is 0 once it is done.
    """

    name: str
    uid: str
    revision: str
    phase: str
    created: float
    assigned: bool = True
    ready: bool = False
    ready_since: float = 0.0
    running_since: float = 0.0
    restarts: int = 0
    deletion_cost: int | None = None
    deleting: bool = False
    waiting_reason: str = ""
    waiting_message: str = ""
    last_exit_code: int | None = None
    last_exit_reason: str = ""
    unschedulable: str = ""
    untaken_since: float = 0.0
    unprepared_since: float = 0.0
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What one worker last said, by pod UID; `reported_at` Unix seconds, `interval_seconds` as last ordered.

    `failed_start` is why this incarnation ended before it ever worked, "" unless it did; `poll_trouble` why it cannot
    poll for the slots it has free.
    """

    pod_uid: str
    incarnation: str
    state: WorkerState
    slots: int
    busy: int
    open_polls: int
    idle_seconds: float
    reported_at: float
    interval_seconds: float
    leases: int = 0
    failed_start: str = ""
    poll_trouble: PollTrouble | None = None


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """Why the task source cannot be read: one of the condition reasons, and a message that names the fix."""

    reason: str
    message: str
    since: float


@dataclass(frozen=True, slots=True)
class MetricPeriod:
    """Tasks that were scheduled and tasks that were started in one period, from `start` (Unix seconds) on."""

    start: int
    seconds: int
    scheduled: int = 0
    started: int = 0


@dataclass(frozen=True, slots=True)
class ActivityMetrics:
    """What a service counted, oldest first; periods in which nothing happened are left out.

    `observed_at` is when it was asked, Unix seconds; the last minutes before may be incomplete.
    """

    periods: tuple[MetricPeriod, ...]
    observed_at: float


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What the operator itself knows of the source: its own polls, the leases it holds, a count where there is one.

    `held` are leases recorded and not yet claimed by a worker; `claimed` ones are a worker's, whose report has not yet
    shown them. `counts` are what is known of the tasks that wait, at most one of them exact; none where nobody can
    count. `metrics` are what another service counted of a source that cannot, None when it was never asked.
    """

    open_polls: int = 0
    held: int = 0
    claimed: int = 0
    counts: tuple[BacklogCount, ...] = ()
    metrics: ActivityMetrics | None = None
    observed_at: float = 0.0
    error: SourceProblem | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that `decide` may know.

    `leader_since` is when this process began to lead (Unix seconds); `report_path_problem` says that reports failed for
    so many workers at once that the report path itself is doubted; `refusal` is the tenancy policy's objection, empty
    when the pool may run; `sharing_pools` are other pools on the same source, as namespace/name; `rejected` is the API
    server's message when it refused the current revision's Deployment, `rejected_reason` the condition reason for it;
    `authentication_problem` is why reports cannot be authenticated now (TokenReview failing); `edit_conflict` says who
    else writes the pool's Deployments again and again.
    """

    now: float
    pool: PoolFacts
    deployments: tuple[DeploymentFacts, ...] = ()
    pods: tuple[PodFacts, ...] = ()
    workers: tuple[WorkerFacts, ...] = ()
    source: SourceFacts = field(default_factory=SourceFacts)
    leader_since: float = 0.0
    report_path_problem: str = ""
    refusal: str = ""
    sharing_pools: tuple[str, ...] = ()
    rejected: str = ""
    rejected_reason: str = ""
    authentication_problem: str = ""
    edit_conflict: str = ""
