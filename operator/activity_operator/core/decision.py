"""The result of `decide`: the actions to apply, the memory for the next decision, and the reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from activity_operator.core.backlog import Backlog
from activity_operator.core.estimates import NO_ESTIMATES, Estimates
from activity_operator.core.failing_polls import NO_FAILING_POLLS, FailingPolls
from activity_operator.core.load_swings import NO_SWINGS, LoadSwings
from activity_operator.core.saturation import Saturation
from activity_operator.core.situation import Situation
from activity_operator.core.size_history import NO_SIZES, SizeHistory
from activity_worker.contract import Directive


@dataclass(frozen=True, slots=True)
class ApplyRevision:
    """Server-side apply one revision's whole Deployment: create it, update it, or revert an edit.

    `manifest` is empty in the decision and rendered afterwards. `resource_version` is the observed one ("" if there was
    no Deployment): if the Deployment has changed in between, the API server rejects the write (409). `keeps_template`:
    the Deployment has pods of another rendering, so the write keeps the pod template that was applied last.
    """

    name: str
    revision: str
    replicas: int
    manifest: Mapping[str, Any] = field(default_factory=dict)
    resource_version: str = ""
    keeps_template: bool = False


@dataclass(frozen=True, slots=True)
class SetReplicas:
    """Write only `spec.replicas`. A scale-down carries `resource_version`, so that a former leader's write gets 409.

    If `resource_version` is None, the write is a scale-up. It is dropped if the replicas have changed in between.
    """

    name: str
    replicas: int
    resource_version: str | None


@dataclass(frozen=True, slots=True)
class DeleteDeployment:
    """Delete an old revision's Deployment, by UID."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class SetDeletionCost:
    """Write the pod-deletion-cost that makes a ReplicaSet remove this pod first; `cost` None removes the annotation."""

    pod: str
    uid: str
    cost: int | None


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete one pod by UID: a stalled worker, or a start that failed and is tried again."""

    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Publish a Kubernetes Event on the pool. `kind` is Normal or Warning; `reason` is stable, CamelCase."""

    kind: str
    reason: str
    message: str


Action = ApplyRevision | SetReplicas | DeleteDeployment | SetDeletionCost | DeletePod | EmitEvent


class CountPace(StrEnum):
    """How much a pool needs the next count.

    `FAST`: workers work or start, and no free slot would take a task. `STEADY`: there is no worker, so that the next
    count shows the first task. `SLOW`: a free slot takes the next task by itself, or the pool may not grow.
    """

    FAST = "fast"
    STEADY = "steady"
    SLOW = "slow"


@dataclass(frozen=True, slots=True)
class SentinelOrder:
    """How many polls the operator keeps open for the pool (`polls`), and how many leases it may hold in all (`take`).

    `counts`: the operator reads the number of waiting tasks, from the source or from CloudWatch, without leasing any.
    `watched`: the operator also asks Prometheus for the number. `preflight`: it asks whether the activity exists.
    `pace` is how much the pool needs the next count, for a source that allows few. `remembers`: the error of the last
    polls stays known until a poll succeeds, also while no poll is wanted. `suspended`: the user lets no worker come, so
    leases wait and are not given up.
    """

    polls: int = 0
    take: int = 0
    counts: bool = False
    watched: bool = False
    preflight: bool = False
    pace: CountPace = CountPace.STEADY
    remembers: bool = False
    suspended: bool = False


class GateState(StrEnum):
    """`OPEN`: the rollout goes on. `JUDGING`: it waits for the canary's tasks. `STOPPED`: their failures stopped it."""

    OPEN = "open"
    JUDGING = "judging"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate of a rollout and the sentence for people, without numbers that change.

    `workers` is the number of workers at which the new revision is kept, None while the gate is open.
    """

    state: GateState = GateState.OPEN
    reason: str = ""
    workers: int | None = None


@dataclass(frozen=True, slots=True)
class Breaker:
    """The start breaker: `trips` failed starts in a row, the last at `opened_at`; closed when `trips` is 0.

    `refused`: the API server refused to create the last pod. `trying`: one more pod may be requested now. `revision`:
    the revision of the failed pods. `succeeded`: another pod has started since `opened_at`.
    """

    trips: int = 0
    opened_at: float = 0.0
    reason: str = ""
    message: str = ""
    refused: bool = False
    trying: bool = False
    revision: str = ""
    succeeded: bool = False

    @property
    def open(self) -> bool:
        """Whether growth is stopped, or slowed down while other pods start."""
        return self.trips > 0


@dataclass(frozen=True, slots=True)
class ScalingMemory:
    """What one decision keeps for the next. A new leader starts with an empty memory and waits one window instead.

    `recommendations` are (Unix seconds, workers), oldest first, within the stabilization window. `quiet_since` is
    when the pool last ran out of work, `saturation` since when every slot has been busy, `emptied_at` when the
    backlog was last certainly empty (0: not known), `waiting_since` when tasks began to wait. `size` is the size
    decided last, None before the first decision. `tasks_failing` is why the tasks count as failing, "" if they do
    not. `proven` are the revisions of which a worker has reported. `announced` are the Events already published, by
    topic. `estimates` are measured times, and `sizes` are the sizes of the last minute. `stopped_revision` is the
    revision whose rollout was stopped, "" if none was. `failing_polls` are the workers that cannot poll. `load` says
    whether large bursts follow each other within the window. `polls_ordered_at` is since when polls of the operator
    are ordered while none is open, 0 if that is not so.
    """

    recommendations: tuple[tuple[float, int], ...] = ()
    quiet_since: float | None = None
    saturation: Saturation | None = None
    proven: frozenset[str] = frozenset()
    breaker: Breaker = field(default_factory=Breaker)
    announced: Mapping[str, str] = field(default_factory=dict)
    emptied_at: float = 0.0
    waiting_since: float | None = None
    size: int | None = None
    estimates: Estimates = NO_ESTIMATES
    tasks_failing: str = ""
    stopped_revision: str = ""
    sizes: SizeHistory = NO_SIZES
    failing_polls: FailingPolls = NO_FAILING_POLLS
    load: LoadSwings = NO_SWINGS
    polls_ordered_at: float = 0.0


class Limit(StrEnum):
    """The rule that sets a pool's size, as `status.decisions` and the metrics name it.

    `DEMAND` is the work itself. `RESERVE` (`scaling.idleWorkers`) and `THROUGHPUT` raise it. `ACTIVATION` keeps a pool
    at zero although a few tasks wait. `FREEZE` and `RECOMMEND` keep the size as it is. `SCHEDULE` is minWorkers or
    maxWorkers of a schedule. `HELD` is a window or a missing signal that keeps more workers. `LEASES`: tasks
    may wait, but the operator may hold no more leases. `MIN`, `MAX`, `PIN` and `PAUSED` come from the spec, `REFUSED`
    from the tenancy policy. The others stop growth: `BREAKER` after failed starts, `UNPREPARED` while pods lack a
    volume or a network, `DOUBT` while the report path is degraded, and `IDLE`, `CRASHING` and `MUTE` because of the
    workers' behaviour.
    """

    DEMAND = "demand"
    RESERVE = "reserve"
    THROUGHPUT = "throughput"
    ACTIVATION = "activation"
    HELD = "held"
    FREEZE = "freeze"
    RECOMMEND = "recommend"
    SCHEDULE = "schedule"
    MIN = "min"
    MAX = "max"
    PIN = "pin"
    PAUSED = "paused"
    REFUSED = "refused"
    BREAKER = "breaker"
    UNPREPARED = "unprepared"
    DOUBT = "doubt"
    LEASES = "leases"
    IDLE = "idle"
    CRASHING = "crashing"
    MUTE = "mute"


@dataclass(frozen=True, slots=True)
class Size:
    """How many workers the pool should have, the rule that set the number, and the reason as a sentence."""

    desired: int
    limit: Limit
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one pool.

    `directives` are by pod UID, `victims` are the names of the pods to cordon, `backlog` is the backlog that the
    decision used. `recommended` is the size that the operator would set with `scaling.mode: Auto`, None in that mode.
    `look_again_in` is in seconds, None if only an event can change the decision. `situation` is the
    decision's input: the status is built from it too, so that pods and reports are joined once.
    """

    size: Size
    memory: ScalingMemory
    actions: tuple[Action, ...] = ()
    directives: Mapping[str, Directive] = field(default_factory=dict)
    victims: tuple[str, ...] = ()
    sentinel: SentinelOrder = field(default_factory=SentinelOrder)
    backlog: Backlog = field(default_factory=Backlog)
    look_again_in: float | None = None
    recommended: Size | None = None
    gate: Gate = Gate()
    situation: Situation | None = None
