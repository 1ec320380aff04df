"""A queue and its work in virtual time: tasks arrive, a world's workers take and finish them, the source is counted."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from activity_operator.core.observation import SourceError, SourceFacts
from activity_operator.core.signal import Signal
from activity_worker.contract import WorkerState
from tests.unit.activity_operator.core.world import World

STEP_SECONDS = 1.0
SILENT = SourceError("BackendUnreachable", "no answer", 0.0)


@dataclass
class Load:
    """Work for a world with a counted source. `seconds` is what a task takes; `lies` may change what is counted.

    `lies` gets the true count and the time, and returns what is told, None for an error.
    """

    world: World
    seconds: float = 5.0
    lies: Callable[[int, float], int | None] = lambda count, _: count
    waiting: deque[int] = field(default_factory=deque)
    under_way: dict[str, list[float]] = field(default_factory=dict)
    arrived: int = 0
    done: int = 0
    sizes: list[int] = field(default_factory=list)

    def arrive(self, tasks: int) -> None:
        """Let tasks arrive."""
        for _ in range(tasks):
            self.arrived += 1
            self.waiting.append(self.arrived)

    def run(self, seconds: float, arrivals: Callable[[float], int] = lambda _: 0) -> None:
        """Let time pass; `arrivals(seconds since the beginning)` come at each step."""
        began, end = self.world.now, self.world.now + seconds
        while self.world.now < end:
            self.arrive(arrivals(self.world.now - began))
            self._work()
            self._count()
            self.sizes.append(self.world.step(STEP_SECONDS).size.desired)

    def run_until_idle(self, seconds: float, workers: int) -> None:
        """Let time pass until everything is done and no more than these workers are left, but not for longer."""
        end = self.world.now + seconds
        while self.world.now < end and (self.done < self.arrived or len(self.world.serving()) > workers):
            self.run(10 * STEP_SECONDS)

    def reversals(self) -> int:
        """Return how often the size turned from growing to shrinking or back."""
        moves = [after - before for before, after in pairwise(self.sizes) if after != before]
        return sum(1 for one, other in pairwise(moves) if (one > 0) != (other > 0))

    def _work(self) -> None:
        world = self.world
        for name in [name for name in self.under_way if name not in world.pods]:
            # Its pod is gone: whoever takes a busy pod has lost what it did, which the world notes.
            del self.under_way[name]
        for name, pod in world.pods.items():
            tasks = [until for until in self.under_way.get(name, ()) if until > world.now]
            self.done += len(self.under_way.get(name, ())) - len(tasks)
            worker = world.workers.get(pod.uid)
            if worker is not None and worker.state is WorkerState.RUNNING and name not in world.silent:
                while self.waiting and len(tasks) < world.spec.slots_per_worker:
                    self.waiting.popleft()
                    tasks.append(world.now + self.seconds)
            self.under_way[name] = tasks
            world.busy[name] = len(tasks)

    def _count(self) -> None:
        told = self.lies(len(self.waiting), self.world.now)
        if told is not None:
            signals = (Signal(told, True, self.world.now),)
            self.world.source = SourceFacts(signals=signals)
        else:
            self.world.source = replace(self.world.source, error=SILENT)
