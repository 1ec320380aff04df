"""A scene in words, for terminal and log alike."""

from tests.demo import plan
from tests.demo.scene import Scene, State

#: Block elements, an eighth of a cell's height each.
_BLOCKS = " ▁▂▃▄▅▆▇█"


def executions(scene: Scene) -> str:
    """Say how many executions wait, run and have ended."""
    parts = [f"{scene.queued} queued", f"{scene.running} running", f"{scene.succeeded} succeeded"]
    return ", ".join(parts + ([f"{scene.failed} NOT SUCCEEDED"] if scene.failed else []))


def workers(scene: Scene) -> str:
    """Say how many workers are in each state that any is in."""
    parts = [f"{number} {state}" for state in State if (number := scene.count(state))]
    return ", ".join(parts) or "none"


def pool(scene: Scene) -> str:
    """Say whether the pool is Ready, and why."""
    said = scene.pool
    if not said.ready:
        return "the operator has not looked at it yet"
    verdict = {"True": "Ready", "False": "NOT READY"}.get(said.ready, "not known yet")
    return f"{verdict} ({said.reason}): {said.message}" if said.message else f"{verdict} ({said.reason})"


def phase(scene: Scene) -> str:
    """Say what the run is waiting for, and why it is so, in what fits beside the panel's labels on 80 columns."""
    if scene.began is None:
        return "waiting until the operator says that the pool is Ready"
    if scene.all_ended:
        return _home(scene)
    if not scene.replicas:
        return "no worker runs: the operator itself polls for the first task"
    if not scene.most_ready:
        return "the operator keeps the task alive while a first worker starts"
    if scene.most_ready < plan.MAX_WORKERS:
        return "the image is proven: the pool grows to what there is to do"
    return f"all {plan.MAX_WORKERS} workers have been running at once"


def _home(scene: Scene) -> str:
    if scene.at_zero:
        return "the pool is at zero again"
    if scene.count(State.DRAINING):
        return "draining: open polls are awaited, aborted ones can lose a task"
    if not scene.replicas:
        return "no worker is wanted any more, and the last ones leave"
    return f"no work is left: after {plan.ZERO_AFTER_SECONDS} s of that the pool goes to zero"


def curve(scene: Scene, now: float, width: int) -> str:
    """Draw the replicas from the first execution until now, a character for each `1/width` of the time."""
    if scene.began is None or width < 1:
        return ""
    began, span = scene.began, max(now - scene.began, float(width) / 4)
    moments = [began + span * (place + 1) / width for place in range(width)]
    return "".join(_block(_size_at(scene, moment)) for moment in moments if moment <= now + span / width)


def _size_at(scene: Scene, moment: float) -> int:
    return next((size for at, size in reversed(scene.sizes) if at <= moment), 0)


def _block(size: int) -> str:
    if not size:
        return "_"
    return _BLOCKS[max(1, min(8, round(8 * size / plan.MAX_WORKERS)))]
