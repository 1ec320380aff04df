"""The scene as plain lines, for a log: each thing that happened once, and the counts when they have changed."""

from dataclasses import dataclass, replace

from tests.demo import plan, telling
from tests.demo.happenings import settled
from tests.demo.scene import Scene

#: Seconds between two lines of counts at least.
COUNTS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Printed:
    """What has been printed already: until when the story, which counts and when, what it waits for."""

    until: float = float("-inf")
    counts: str = ""
    counts_at: float = float("-inf")
    phase: str = ""


def lines(scene: Scene, now: float, printed: Printed) -> tuple[list[str], Printed]:
    """Return the lines that are due at `now`, and what has been printed with them."""
    due = [happening for happening in settled(scene.story, now) if happening.at > printed.until]
    found = [_stamped(scene, now, happening.text) for happening in due]
    if due:
        printed = replace(printed, until=due[-1].at)
    counts = (
        f"executions: {telling.executions(scene)} | workers: {telling.workers(scene)} | "
        f"replicas: {scene.replicas} of 0..{plan.MAX_WORKERS}"
    )
    if scene.began is not None and counts != printed.counts and now - printed.counts_at >= COUNTS_SECONDS:
        found.append(_stamped(scene, now, counts))
        printed = replace(printed, counts=counts, counts_at=now)
    phase = telling.phase(scene)
    if phase != printed.phase:
        found.append(_stamped(scene, now, phase))
        printed = replace(printed, phase=phase)
    return found, printed


def _stamped(scene: Scene, at: float, text: str) -> str:
    clock = "      -  " if scene.began is None else f"{at - scene.began:+7.1f} s"
    return f"{clock}  {text}"
