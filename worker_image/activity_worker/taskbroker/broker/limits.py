"""Whether a broker takes more tasks, by what it last counted and what it has added since."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.store.broker_store import QueueDepth

#: Activations that wait, by default: a million of a kilobyte are a gigabyte of store.
MAX_PENDING: Final = 1_000_000
#: Activations that workers have, by default.
MAX_PROCESSING: Final = 100_000
_WAITING: Final = (ActivationState.PENDING, ActivationState.CLAIMED, ActivationState.DELAY)


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """From how many waiting activations (pending, claimed, delayed), or processing ones, on nothing is added."""

    max_pending: int = MAX_PENDING
    max_processing: int = MAX_PROCESSING


class Admissions:
    """Counts what is added between two counts of the store, so that no call has to count it."""

    def __init__(self, limits: StoreLimits) -> None:
        self._limits = limits
        self._waiting = self._processing = self._added = 0

    def counted(self, depths: Sequence[QueueDepth]) -> None:
        """Take a new count of the store."""
        self._waiting = sum(depth.count for depth in depths if depth.state in _WAITING)
        self._processing = sum(depth.count for depth in depths if depth.state is ActivationState.PROCESSING)
        self._added = 0

    def added(self, number: int) -> None:
        """Count what was added since."""
        self._added += number

    def refusal(self) -> str:
        """Return why nothing more is taken, "" if it is."""
        waiting = self._waiting + self._added
        if waiting >= self._limits.max_pending:
            return f"{waiting} tasks wait, and --max-pending is {self._limits.max_pending}: try again later"
        if self._processing >= self._limits.max_processing:
            limit = self._limits.max_processing
            return f"workers have {self._processing} tasks, and --max-processing is {limit}: try again later"
        return ""
