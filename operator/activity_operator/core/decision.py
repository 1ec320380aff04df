"""What `decide` answers: actions for the shell to carry out, the memory to carry on, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from activity_operator.core.backlog import Backlog
from activity_operator.core.saturation import Saturation
from activity_worker.contract import Directive


@dataclass(frozen=True, slots=True)
class ApplyRevision:
    """Server-side apply one revision's whole Deployment (create it, render it anew, or put an edit back).

    `manifest` is empty until it is rendered, after the decision. `resource_version` is what was seen of it ("" where
    there was none): one that changed meanwhile is left alone (409).
    """

    name: str
    revision: str
    replicas: int
    manifest: Mapping[str, Any] = field(default_factory=dict)
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class SetReplicas:
    """Write only `spec.replicas`; a lowering write carries `resource_version`, so a former leader's gets 409.

    None says that it was decided as a raise: where replicas are not what they were, it is void, too.
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
    """Write (or with None remove) the pod-deletion-cost that makes a ReplicaSet remove this pod first."""

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


@dataclass(frozen=True, slots=True)
class SentinelOrder:
    """How many polls the operator keeps open for the pool, and how many leases it may hold in all.

    `counts` says whether it counts the source's tasks, or reads what another service counted of them, which takes none;
    `watched` whether it asks Prometheus for a count besides.
    """

    polls: int = 0
    take: int = 0
    counts: bool = False
    watched: bool = False


@dataclass(frozen=True, slots=True)
class Breaker:
    """The start breaker: `trips` failed starts in a row, the last at `opened_at`; closed when `trips` is 0.

    `refused` says that the last start did not even become a pod, `trying` that one more pod may be asked for now;
    `revision` is whose starts these were.
    """

    trips: int = 0
    opened_at: float = 0.0
    reason: str = ""
    message: str = ""
    refused: bool = False
    trying: bool = False
    revision: str = ""

    @property
    def open(self) -> bool:
        """Whether growth is stopped."""
        return self.trips > 0


@dataclass(frozen=True, slots=True)
class ScalingMemory:
    """What carries over from one decision to the next; all of it can be rebuilt, at the price of waiting a window.

    `recommendations` are (Unix seconds, workers), oldest first, within the stabilization window; `quiet_since` is when
    the pool last became empty of work, `saturation` since when every slot has been busy, `emptied_at` when surely
    nothing waited (0: not known), `waiting_since` when tasks began to wait; `proven` are revisions that ever had a
    worker report.
    """

    recommendations: tuple[tuple[float, int], ...] = ()
    quiet_since: float | None = None
    saturation: Saturation | None = None
    proven: frozenset[str] = frozenset()
    breaker: Breaker = field(default_factory=Breaker)
    announced: Mapping[str, str] = field(default_factory=dict)
    emptied_at: float = 0.0
    waiting_since: float | None = None


class Limit(StrEnum):
    """The rule that binds a pool's size, as `status.decisions` and the metrics name it.

    `DEMAND` is the work itself; `HELD` is a window or a missing signal that keeps more workers; `MIN`, `MAX`, `PIN` and
    `PAUSED` are the spec's. `REFUSED` is the tenancy policy's. The others stop growth: `BREAKER` after failed starts,
    `UNPREPARED` while pods lack a volume or a network, `DOUBT` while the report path fails, and `IDLE`, `CRASHING` and
    `MUTE` for what the workers do.
    """

    DEMAND = "demand"
    HELD = "held"
    MIN = "min"
    MAX = "max"
    PIN = "pin"
    PAUSED = "paused"
    REFUSED = "refused"
    BREAKER = "breaker"
    UNPREPARED = "unprepared"
    DOUBT = "doubt"
    IDLE = "idle"
    CRASHING = "crashing"
    MUTE = "mute"


@dataclass(frozen=True, slots=True)
class Size:
    """How many workers, which rule bound it, and the sentence for people."""

    desired: int
    limit: Limit
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """One answer for one pool.

    `directives` are by pod UID; `backlog` is what was known of the backlog; `look_again_in` is in seconds, None when
    only a change can alter the answer.
    """

    size: Size
    memory: ScalingMemory
    actions: tuple[Action, ...] = ()
    directives: Mapping[str, Directive] = field(default_factory=dict)
    victims: tuple[str, ...] = ()
    sentinel: SentinelOrder = field(default_factory=SentinelOrder)
    backlog: Backlog = field(default_factory=Backlog)
    look_again_in: float | None = None
