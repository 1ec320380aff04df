"""PURE: how slowly a pool shrinks where the user sets no times: by the measured start of its pods.

A worker of Step Functions that polls cannot leave before the end of its poll of 60 s. So the time before zero ends just
before such a poll does: one that ends just after it would cost another minute. The window ends so where all idle
workers poll. Elsewhere a window of the operator's fades: its workers leave in steps.
"""

import math

from activity_operator.api.spec import PoolSpec

#: The window in starts of a pod, and its bounds in seconds: a start that is saved is worth as much idle time. The
#: window fades, so its workers stay for half of it on average.
WINDOW_STARTS, SHORTEST_WINDOW_SECONDS, LONGEST_WINDOW_SECONDS = 8.0, 20, 60
#: Windows for which a window does not fade after a burst that came again within it.
RETURN_WINDOWS = 3
#: `zeroAfterSeconds` in starts of a pod, and its bounds in seconds. The longest is a multiple of the poll's minute less
#: ten seconds, as on Step Functions.
ZERO_STARTS, SHORTEST_ZERO_SECONDS, LONGEST_ZERO_SECONDS = 20.0, 50, 230
#: Seconds of a poll of Step Functions, and by how much earlier a time ends that waits for such polls.
POLL_SECONDS, BEFORE_POLL_SECONDS = 60, 10


def with_windows(spec: PoolSpec, start_seconds: float | None) -> PoolSpec:
    """Return the spec with the times that it leaves open; `start_seconds` None: no pod of the pool has started yet."""
    down = spec.scaling.scale_down
    if down.stabilization_window_seconds is not None and down.zero_after_seconds is not None:
        return spec
    window, zero_after = default_windows(spec, start_seconds)
    changes = {
        "stabilization_window_seconds": _first(down.stabilization_window_seconds, window),
        "zero_after_seconds": _first(down.zero_after_seconds, zero_after),
    }
    scaling = spec.scaling.model_copy(update={"scale_down": down.model_copy(update=changes)})
    return spec.model_copy(update={"scaling": scaling})


def default_windows(spec: PoolSpec, start_seconds: float | None) -> tuple[int, int]:
    """Return the stabilization window and the time before zero in seconds; the longest if the start is not known."""
    start = math.inf if start_seconds is None else start_seconds
    window = _bounded(WINDOW_STARTS * start, SHORTEST_WINDOW_SECONDS, LONGEST_WINDOW_SECONDS)
    zero_after = _bounded(ZERO_STARTS * start, SHORTEST_ZERO_SECONDS, LONGEST_ZERO_SECONDS)
    if spec.source_kind != "stepFunctions":
        return window, zero_after
    polls = max(round((zero_after + BEFORE_POLL_SECONDS) / POLL_SECONDS), 1)
    if idle_workers_poll(spec):
        window = POLL_SECONDS - BEFORE_POLL_SECONDS
    return window, polls * POLL_SECONDS - BEFORE_POLL_SECONDS


def idle_workers_poll(spec: PoolSpec) -> bool:
    """Whether all idle workers have a poll of Step Functions open, so that none can leave at once."""
    return spec.source_kind == "stepFunctions" and spec.activation.mode != "Sentinel"


def fades_from(returned_at: float, window_seconds: float) -> float:
    """Return the Unix time from which a window fades again after a burst that came again at `returned_at`."""
    return returned_at + RETURN_WINDOWS * window_seconds if returned_at else 0.0


def _bounded(seconds: float, least: int, most: int) -> int:
    return math.ceil(min(max(seconds, least), most))


def _first(number: int | None, otherwise: int) -> int:
    return otherwise if number is None else number
