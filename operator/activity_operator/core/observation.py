"""The observation of one pool at one moment: frozen values, including `now`. No I/O happens here."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from activity_operator.core.task_window import TaskWindow
from activity_worker.contract import PollTrouble, WorkerState


@dataclass(frozen=True, slots=True)
class BacklogCount:
    """How many tasks wait, as counted at `observed_at` (Unix seconds).

    `exact`: the source itself has just counted its unleased tasks. Otherwise the number is a lower bound that may be
    minutes old, and some of its tasks may be running. `with_running`: the number includes leased tasks, also those of
    dead workers. `running`: leased tasks that the number leaves out, also those of dead workers and of other programs;
    0 if they are not counted. `truncated`: the source itself says that more tasks wait than the number.
    `stale_seconds`: the count's age at which it is stale, 0 for the usual one; more than 0 for a count that may be
    seconds old, because the source allows few counts. `oldest_since`: since when the first of the tasks waits (Unix
    seconds), None if the source cannot tell. `missing`: why a part of the source is not counted, "" if all of it is.
    """

    tasks: int
    exact: bool
    observed_at: float
    with_running: bool = False
    running: int = 0
    truncated: bool = False
    stale_seconds: float = 0.0
    oldest_since: float | None = None
    missing: str = ""


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """The ActivityPool's identity.

    `generation` is metadata.generation; `deleting` says that it has a deletionTimestamp. Some values come from the
    status: `proven_revision` is the last template revision of which a worker has reported, `emptied_at` a moment at
    which the backlog was empty (Unix seconds, 0 if the status has none), `desired` the size decided last, and
    `tasks_failing` the message of the condition TasksFailing, "" if it is not there, and `stopped_revision` the
    revision whose rollout was stopped.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    deleting: bool = False
    proven_revision: str = ""
    emptied_at: float = 0.0
    desired: int = 0
    tasks_failing: str = ""
    stopped_revision: str = ""


@dataclass(frozen=True, slots=True)
class DeploymentFacts:
    """One revision's Deployment as the watch last showed it.

    `rendered_generation` is the pool generation that it was applied for. `drifted`: an edit changed fields that the
    operator owns. `outdated`: its template is another rendering of the same spec, by another version of the operator or
    with other settings. `failure` is the message of its ReplicaFailure condition (quota, admission). `scaled_by` and
    `edited_by` are the other field managers that last wrote its replicas or any other field.
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
    CrashLoopBackOff …). `last_exit_code` and `last_exit_reason` (Error, OOMKilled, Completed) are those of its last
    termination. `unschedulable` is the scheduler's message. `untaken_since`: since when the pod has had a node whose
    kubelet has not taken it up. `unprepared_since`: since when the kubelet has been preparing volumes and network. Both
    are 0 when the step is done.
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
class SlotUse:
    """What a worker's slots did between its last two reports, `seconds` apart.

    `busy_share` is the share of the slots' time with a task, from 0 to 1; `received` and `empty_polls` count tasks and
    polls without a task. `joined`: the worker began to poll only after the earlier report.
    """

    seconds: float
    busy_share: float
    received: int
    empty_polls: int
    joined: bool = False

    def free_seconds(self, slots: int) -> float:
        """Return the mean time for which a slot was free before each task, in seconds."""
        return (1.0 - self.busy_share) * slots * self.seconds / max(self.received, 1)


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """One worker's last report. `reported_at` is in Unix seconds; `interval_seconds` is what the last reply ordered.

    `failed_start` is why this incarnation ended before its first task, "" if it did not. `poll_trouble` is why the
    worker cannot poll for its free slots. `use` is None after a worker's first report. `runtime` is the version of the
    worker's package.
    `running_seconds` is the sum of the ages of its tasks. The others are totals since its container started:
    `busy_seconds` of its slots with a task, `ended` tasks, and `answers` to its polls, with a task or without.
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
    use: SlotUse | None = None
    running_seconds: float = 0.0
    busy_seconds: float = 0.0
    ended: int = 0
    answers: int = 1
    runtime: str = ""


@dataclass(frozen=True, slots=True)
class ReportPathFacts:
    """What is known of the way of a pool's reports.

    `problem` is why the pool keeps its size because reports do not arrive, "" if they do. `excused` are the workers
    that fell silent together with many others, by pod UID, each with the sentence for people.
    """

    problem: str = ""
    excused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """Why the task source cannot be read: one of the condition reasons, and a message that names the fix."""

    reason: str
    message: str
    since: float


@dataclass(frozen=True, slots=True)
class MetricPeriod:
    """The numbers of scheduled and started tasks in one period that begins at `start` (Unix seconds)."""

    start: int
    seconds: int
    scheduled: int = 0
    started: int = 0


@dataclass(frozen=True, slots=True)
class ActivityMetrics:
    """CloudWatch's counts, oldest first, without the periods in which no task was scheduled or started.

    `observed_at` is the time of the read, Unix seconds; the last minutes before it may be incomplete.
    """

    periods: tuple[MetricPeriod, ...]
    observed_at: float


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What the operator itself knows of the source: its open polls, its leases, and the counts.

    `held` leases are recorded and unclaimed; `claimed` leases belong to a worker whose reports do not show them yet.
    `counts` are the counts of waiting tasks, at most one of them exact; empty if the pool has no count. `metrics` are
    CloudWatch's counts for Step Functions, None before the first read. `observed_at` is when a poll was last answered
    (Unix seconds), `oldest_poll_at` and `newest_poll_at` when the oldest and the newest open poll were opened (0
    without one), and `at_once` how many answers in a row brought a task at once. `error` is why the source cannot be
    read, and `poll_error` why the operator's own polls fail, which is one of the reasons for it. `preflight` is why the
    activity cannot be used by the answer to the operator's question for it.
    `withheld` is why the operator takes no further task for the pool although it may use one, "" if it takes them.
    """

    open_polls: int = 0
    held: int = 0
    claimed: int = 0
    counts: tuple[BacklogCount, ...] = ()
    metrics: ActivityMetrics | None = None
    observed_at: float = 0.0
    oldest_poll_at: float = 0.0
    newest_poll_at: float = 0.0
    at_once: int = 0
    error: SourceProblem | None = None
    poll_error: SourceProblem | None = None
    preflight: SourceProblem | None = None
    withheld: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that `decide` may know.

    `leader_since`: when this process began to lead (Unix seconds). `report_path_problem`: why the report path counts as
    degraded, because the reports of many workers stopped at once. `excused_workers`: the silent workers among them, as
    in `ReportPathFacts`. `refusal`: why the tenancy policy forbids the pool.
    `sharing_pools`: other pools on the same source, as namespace/name. `rejected`: the API server's message if it
    refused the current revision's Deployment; `rejected_reason` is its condition reason. `authentication_problem`: why
    reports cannot be authenticated (TokenReview fails). `edit_conflict`: which other field managers keep changing the
    pool's Deployments. Each text is "" if there is no such problem. `tasks`: what the workers did in the last minutes.
    """

    now: float
    pool: PoolFacts
    deployments: tuple[DeploymentFacts, ...] = ()
    pods: tuple[PodFacts, ...] = ()
    workers: tuple[WorkerFacts, ...] = ()
    source: SourceFacts = field(default_factory=SourceFacts)
    leader_since: float = 0.0
    report_path_problem: str = ""
    excused_workers: Mapping[str, str] = field(default_factory=dict)
    refusal: str = ""
    sharing_pools: tuple[str, ...] = ()
    rejected: str = ""
    rejected_reason: str = ""
    authentication_problem: str = ""
    edit_conflict: str = ""
    tasks: TaskWindow = ()
