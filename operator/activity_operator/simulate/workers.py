"""PURE: workers and a pool of them in virtual time: pods, slots, polls, and what each task and each pod has cost."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from activity_operator.simulate.tasks import Poll, Task, TaskSource
from activity_operator.simulate.timeline import Timeline

#: Spread of the pods' start times: sigma of a lognormal distribution with the median `--pod-start`.
START_SIGMA = 0.35
#: Seconds of a pod's usual grace period (Kubernetes' default). A longer task on a pod that is removed would be killed.
USUAL_GRACE_SECONDS = 30.0


@dataclass(slots=True)
class Costs:
    """What a pool has cost: worker-seconds from each pod's creation to its end, pods started, writes to the API server.

    `interrupted` are tasks that ran on a pod when it was scaled away, `killed` those of them with more than 30 s to go.
    `sizes` are (seconds, wanted workers), one entry for each change.
    """

    worker_seconds: float = 0.0
    starts: int = 0
    writes: int = 0
    interrupted: int = 0
    killed: int = 0
    most_workers: int = 0
    sizes: list[tuple[float, int]] = field(default_factory=list)


class Worker:
    """One pod with its slots. It polls for each free slot while it accepts tasks."""

    def __init__(self, pool: "WorkerPool", number: int) -> None:
        self.pool = pool
        self.number = number
        self.created = pool.timeline.now
        self.accepts = False
        self.ended = False
        self.tasks: list[Task] = []
        self.polls: list[Poll] = []
        self.received = 0
        self._first_polls = pool.slots
        #: Since when a free slot has waited for a task.
        self.idle_since = 0.0
        self._busy_seconds = 0.0
        self._counted_at = self.created

    @property
    def busy(self) -> int:
        """Slots with a task."""
        return len(self.tasks)

    @property
    def serves(self) -> bool:
        """Whether the worker has started, and takes tasks."""
        return self.accepts

    @property
    def free_slots(self) -> int:
        """Slots with neither a task nor a poll."""
        return self.pool.slots - len(self.tasks) - len(self.polls)

    def busy_seconds(self) -> float:
        """Return the sum of the seconds in which the worker's slots had a task."""
        now = self.pool.timeline.now
        self._busy_seconds += len(self.tasks) * (now - self._counted_at)
        self._counted_at = now
        return self._busy_seconds

    def accept(self) -> None:
        """Poll for each free slot from now on."""
        self.accepts = True
        if not self.tasks:
            self.idle_since = self.pool.timeline.now
        self.fill()

    def fill(self) -> None:
        """Open a poll for each free slot."""
        pool = self.pool
        while self.accepts and self.free_slots > 0:
            poll = Poll(pool.timeline.now, self.receive)
            if self._first_polls:
                self._first_polls -= 1
                poll.not_before = poll.opened + pool.first_poll_seconds
            self.polls.append(poll)
            pool.source.open(poll)

    def receive(self, poll: Poll, task: Task) -> None:
        """Take the task of a poll."""
        self.polls.remove(poll)
        self.start(task)

    def start(self, task: Task) -> None:
        """Run a task in a free slot."""
        timeline = self.pool.timeline
        self.busy_seconds()
        task.started = timeline.now
        self.tasks.append(task)
        self.received += 1
        timeline.after(task.seconds, lambda: self.finish(task))
        self.changed()

    def finish(self, task: Task) -> None:
        """Conclude a task and poll for the next one."""
        now = self.pool.timeline.now
        self.busy_seconds()
        if len(self.tasks) == self.pool.slots:
            self.idle_since = now
        self.tasks.remove(task)
        task.ended = now
        self.pool.done += 1
        self.next_task()
        self.changed()

    def next_task(self) -> None:
        """Look for the next task after one has ended."""
        self.fill()

    def changed(self) -> None:
        """Take note of a task that began or ended."""


class WorkerPool:
    """A source and its workers. `start_seconds` is the median time from a pod's creation to its first poll."""

    #: How a table names the policy of the pool.
    name = ""
    #: Least seconds from the first poll of each slot to its answer.
    first_poll_seconds = 0.0

    def __init__(
        self, timeline: Timeline, random_source: random.Random, *, slots: int, start_seconds: float, poll_seconds: float
    ) -> None:
        self.timeline = timeline
        self.random = random_source
        self.slots = slots
        self.start_seconds = start_seconds
        self.source = TaskSource(timeline, random_source, poll_seconds)
        self.workers: dict[int, Worker] = {}
        self.costs = Costs()
        self.done = 0
        self.wanted = 0

    def arrive(self, task: Task) -> None:
        """Take in a task."""
        task.from_zero = not any(worker.serves for worker in self.workers.values())
        self.source.arrive(task)

    @property
    def waiting(self) -> int:
        """Number of tasks that have not begun and are on the way to no worker."""
        return len(self.source.waiting)

    def begin(self) -> None:
        """Start the policy."""

    def busy(self) -> int:
        """Return the number of slots with a task."""
        return sum(worker.busy for worker in self.workers.values())

    def want(self, size: int) -> None:
        """Record the wanted number of workers."""
        if size != self.wanted or not self.costs.sizes:
            self.wanted = size
            self.costs.sizes.append((self.timeline.now, size))

    def start_delay(self) -> float:
        """Return the seconds that the next pod takes to start."""
        return self.random.lognormvariate(math.log(self.start_seconds), START_SIGMA)

    def add(self, make: Callable[["WorkerPool", int], Worker]) -> Worker:
        """Create a pod."""
        self.costs.starts += 1
        worker = make(self, self.costs.starts)
        self.workers[worker.number] = worker
        self.costs.most_workers = max(self.costs.most_workers, len(self.workers))
        return worker

    def count_interrupted(self, worker: Worker) -> None:
        """Record the tasks of a pod that is being scaled away."""
        self.costs.interrupted += len(worker.tasks)
        for task in worker.tasks:
            if task.started is not None:
                left = task.started + task.seconds - self.timeline.now
                self.costs.killed += left > USUAL_GRACE_SECONDS

    def end(self, worker: Worker) -> None:
        """Remove a pod that has ended."""
        worker.ended = True
        self.costs.worker_seconds += self.timeline.now - worker.created
        del self.workers[worker.number]

    def close(self) -> None:
        """Count the workers that are left at the end of the simulation."""
        for worker in list(self.workers.values()):
            self.end(worker)
