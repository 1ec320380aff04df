"""`scaling.freeze`: the pool keeps its size although the work asks for more, for less, or for either."""

from activity_operator.api.spec import PoolSpec
from activity_operator.core.situation import Situation

_GROWTH = frozenset({"ScaleUp", "Both"})
_SHRINKING = frozenset({"ScaleDown", "Both"})


def stops_growth(spec: PoolSpec) -> bool:
    """Return whether the pool may not grow."""
    return spec.scaling.freeze in _GROWTH


def size_with_freeze(situation: Situation, workers: int, last: int | None) -> tuple[int, str]:
    """Return the number of workers with the freeze, and why it differs; "" if it does not.

    `last` is the size decided last; a new leader takes it from the status.
    """
    mode = situation.spec.scaling.freeze
    size = situation.observation.pool.desired if last is None else last
    if (workers > size and stops_growth(situation.spec)) or (workers < size and mode in _SHRINKING):
        return size, f"kept at {size} by scaling.freeze {mode}"
    return workers, ""
