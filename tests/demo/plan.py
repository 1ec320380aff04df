"""What the demo plays: how much work, how many workers, and windows short enough to watch."""

from activity_operator.api.parts import Drain

EXECUTIONS = 40
MAX_WORKERS = 10
POOL = "demo"
SHORTEST_SECONDS, LONGEST_SECONDS = 2.0, 6.0
STABILIZATION_SECONDS, ZERO_AFTER_SECONDS = 5, 10
#: Many times the longest task; a namespace that is deleted waits for half of what its pods may take to stop.
DRAIN_SECONDS = 30
#: LocalEmu gives a task without TimeoutSeconds 60 s from its scheduling, waiting included.
TASK = {"TimeoutSeconds": 600}
#: 17 and 40 have no common divisor, so steps of 17 visit every duration once.
_STRIDE = 17


def durations() -> list[float]:
    """Return the seconds of each execution's task: spread evenly over 2 to 6 s, long and short ones mixed."""
    step = (LONGEST_SECONDS - SHORTEST_SECONDS) / (EXECUTIONS - 1)
    return [round(SHORTEST_SECONDS + step * (n * _STRIDE % EXECUTIONS), 2) for n in range(EXECUTIONS)]


def spec() -> dict[str, object]:
    """Return what the demo's pool says besides the activity and the image."""
    down = {"stabilizationWindowSeconds": STABILIZATION_SECONDS, "zeroAfterSeconds": ZERO_AFTER_SECONDS}
    return {
        "minWorkers": 0,
        "maxWorkers": MAX_WORKERS,
        "slotsPerWorker": 1,
        "scaling": {"scaleDown": down},
        "drain": {"timeoutSeconds": DRAIN_SECONDS},
    }


def introduction() -> str:
    """Return what is going to be shown, and how it differs from a pool with default windows."""
    return (
        f"{EXECUTIONS} executions of {SHORTEST_SECONDS:.0f} to {LONGEST_SECONDS:.0f} s each, "
        f"a pool of 0 to {MAX_WORKERS} workers with one slot each.\n"
        f"The pool's windows are short, so that it can be watched:\n"
        f"  scaling.scaleDown: stabilizationWindowSeconds {STABILIZATION_SECONDS}, zeroAfterSeconds "
        f"{ZERO_AFTER_SECONDS} instead of times by the measured start of a pod\n"
        f"  drain: timeoutSeconds {DRAIN_SECONDS} instead of {Drain().timeout_seconds}"
    )
