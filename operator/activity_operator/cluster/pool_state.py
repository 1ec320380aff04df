"""The reconciler's state of a pool between two reconciliations. All of it can be rebuilt."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from activity_operator.api.status import EventRecord
from activity_operator.cluster.apply import Rejection
from activity_operator.cluster.edit_conflicts import EditConflicts
from activity_operator.cluster.parsed_pool import ParsedPods, ParsedPool
from activity_operator.core.decision import ScalingMemory


@dataclass(slots=True)
class PoolState:
    """The state of one pool, for one UID and one term. Times are seconds of the monotonic clock; -inf means never.

    `replicas` are, by Deployment, the replicas that this process wrote last, or saw first. `status` is the digest of
    the status that it wrote last; `unwritten` is a newer status whose write is deferred. `urgent_part` is what of the
    last computed status could not wait, () if it waits all the same. `parsed` saves the parsing of what has not
    changed, in pools that have pods. `logged_size` is the size of the last decision in the log.
    """

    uid: str
    term_began: float
    memory: ScalingMemory = field(default_factory=ScalingMemory)
    inherited: tuple[EventRecord, ...] = ()
    pods: ParsedPods = field(default_factory=ParsedPods)
    parsed: ParsedPool | None = None
    replicas: dict[str, int] = field(default_factory=dict)
    edit_conflicts: EditConflicts = field(default_factory=EditConflicts)
    rejected: Rejection | None = None
    last_raise: float = float("-inf")
    status_written: float = float("-inf")
    status: str = ""
    unwritten: Mapping[str, Any] | None = None
    urgent_part: tuple[object, ...] = ()
    failures: int = 0
    logged_size: int | None = None
