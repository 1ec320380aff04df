"""PURE: other autoscalers in virtual time, from their documented algorithms, each at its best.

They see an exact count at every moment, also where the source has none. A worker that they remove stops polling at
once and finishes its tasks, however long these take; the interrupted tasks are only counted.

Sources: KEDA "Scaling Deployments, StatefulSets & Custom Resources" and "ScaledObject specification" (pollingInterval
30 s, cooldownPeriod 300 s); Kubernetes "Horizontal Pod Autoscaling" (sync 15 s, tolerance 10 %, default behavior);
Knative "KPA-specific configuration" and its `pkg/autoscaler/scaling` (stable window 60 s, panic window 6 s).
"""

import math
import random
from collections import deque
from dataclasses import dataclass

from activity_operator.simulate.tasks import Task
from activity_operator.simulate.timeline import Timeline
from activity_operator.simulate.workers import Worker, WorkerPool

#: Seconds between two decisions of the HorizontalPodAutoscaler, and the deviation from the target that it ignores.
SYNC_SECONDS, TOLERANCE = 15.0, 0.1
#: Seconds from a poll to a task that waits.
POLL_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Bounds:
    """What every policy gets from the manifest."""

    min_workers: int
    max_workers: int
    slots: int
    start_seconds: float


class PeerPool(WorkerPool):
    """A Deployment whose replicas another autoscaler sets."""

    def __init__(self, timeline: Timeline, random_source: random.Random, bounds: Bounds) -> None:
        super().__init__(
            timeline,
            random_source,
            slots=bounds.slots,
            start_seconds=bounds.start_seconds,
            poll_seconds=POLL_SECONDS,
        )
        self.bounds = bounds
        self.scale(self.least)

    @property
    def least(self) -> int:
        """Fewest workers."""
        return self.bounds.min_workers

    @property
    def ready(self) -> int:
        """Number of workers that have started and stay."""
        return sum(worker.accepts for worker in self.workers.values())

    def scale(self, size: int) -> None:
        """Set the replicas. A ReplicaSet removes pods that have not started first, then the youngest ones."""
        size = max(self.least, min(size, self.bounds.max_workers))
        if size != self.wanted:
            self.costs.writes += 1
        self.want(size)
        staying = [worker for worker in self.workers.values() if not _leaves(worker)]
        for _ in range(size - len(staying)):
            self._start()
        staying.sort(key=lambda worker: (worker.accepts, -worker.number))
        for worker in staying[: max(0, len(staying) - size)]:
            self._remove(worker)

    def _start(self) -> None:
        worker = self.add(PeerWorker)
        self.timeline.after(self.start_delay(), lambda: None if worker.ended else worker.accept())

    def _remove(self, worker: Worker) -> None:
        self.count_interrupted(worker)
        worker.accepts = False
        worker.polls = [poll for poll in worker.polls if not self.source.close(poll)]
        if worker.tasks or worker.polls:
            worker.leaves = True  # type: ignore[attr-defined]
        else:
            self.end(worker)


class PeerWorker(Worker):
    """A worker that ends after its last task once it leaves."""

    leaves = False

    def changed(self) -> None:
        """End if this was the last task of a worker that leaves."""
        if self.leaves and not (self.ended or self.tasks or self.polls):
            self.pool.end(self)


def _leaves(worker: Worker) -> bool:
    return isinstance(worker, PeerWorker) and worker.leaves


class HorizontalPodAutoscaler(PeerPool):
    """The common part of all policies that use Kubernetes' HorizontalPodAutoscaler.

    Growth within 15 s: to the double or by 4, whichever is more; with `unlimited` to any size. It shrinks to the
    highest recommendation of the last `window_seconds`.
    """

    window_seconds = 300.0
    unlimited = False

    def begin(self) -> None:
        """Synchronise every 15 s, from a random moment on."""
        self._recommendations: deque[tuple[float, int]] = deque()
        self._raises: deque[tuple[float, int]] = deque()
        self.timeline.every(SYNC_SECONDS, self._sync, self.random.uniform(0, SYNC_SECONDS))

    def recommended(self) -> int:
        """Return the size that the metric asks for."""
        raise NotImplementedError

    def _sync(self) -> None:
        if self.wanted == 0:
            return
        now, current = self.timeline.now, self.wanted
        asked = self.recommended()
        self._recommendations.append((now, asked))
        while now - self._recommendations[0][0] > self.window_seconds:
            self._recommendations.popleft()
        highest = max(size for _, size in self._recommendations)
        size = asked if asked >= current else min(current, highest)
        if size > current:
            size = min(size, self._growth_limit(now, current))
            self._raises.append((now, size - current))
        self.scale(max(1, size))

    def _growth_limit(self, now: float, current: int) -> int:
        if self.unlimited:
            return self.bounds.max_workers
        while self._raises and now - self._raises[0][0] >= SYNC_SECONDS - 0.001:
            self._raises.popleft()
        before = current - sum(added for _, added in self._raises)
        return max(before + 4, 2 * before)


class Keda(HorizontalPodAutoscaler):
    """KEDA with its defaults on the length of the queue, one task for each slot.

    It starts the first worker at its own poll of the queue (30 s), and the HorizontalPodAutoscaler does the rest. The
    length of the queue leaves out running tasks, as for its scaler of Redis lists.
    """

    name = "keda"
    polling_seconds = 30.0
    cooldown_seconds = 300.0

    def begin(self) -> None:
        """Poll the queue from a random moment on."""
        super().begin()
        self._active_at = self.timeline.now
        self.timeline.every(self.polling_seconds, self._poll, self.random.uniform(0, self.polling_seconds))

    def recommended(self) -> int:
        """Return the workers for the waiting tasks, unless they are within 10 % of the present number."""
        wanted = len(self.source.waiting) / self.slots
        if self.wanted and abs(wanted / self.wanted - 1.0) <= TOLERANCE:
            return self.wanted
        return math.ceil(wanted)

    def _poll(self) -> None:
        now = self.timeline.now
        if self.source.waiting:
            self._active_at = now
            if self.wanted == 0:
                self.scale(1)
        elif self.bounds.min_workers == 0 and self.wanted and now - self._active_at >= self.cooldown_seconds:
            self.scale(0)


class KedaTuned(Keda):
    """KEDA as an expert sets it for bursts: polls every second, grows without limit, shrinks after 30 s."""

    name = "keda-tuned"
    polling_seconds = 1.0
    cooldown_seconds = 30.0
    window_seconds = 30.0
    unlimited = True


class CpuAutoscaler(HorizontalPodAutoscaler):
    """The HorizontalPodAutoscaler on CPU: each busy slot uses one core of its own, 70 % is the target.

    The utilisation is the mean of the last 15 s, as the metrics server shows it. It has at least one worker.
    """

    name = "hpa-cpu"
    target = 0.7

    @property
    def least(self) -> int:
        """Fewest workers: the autoscaler is switched off at zero."""
        return max(1, self.bounds.min_workers)

    def begin(self) -> None:
        """Note the CPU seconds of each worker, so that the first sync knows a difference."""
        super().begin()
        self._before: dict[int, float] = {}

    def recommended(self) -> int:
        """Return the size at which the mean utilisation is the target; a worker that starts counts as unused."""
        present = {worker.number: worker.busy_seconds() for worker in self.workers.values() if worker.accepts}
        used = sum(seconds - self._before.get(number, 0.0) for number, seconds in present.items())
        self._before = present
        if not present:
            return self.wanted
        ratio = used / (SYNC_SECONDS * self.slots * self.target)
        if ratio / len(present) > 1.0:
            # Workers that have not started count as unused when the pool would grow.
            return self.wanted if ratio / self.wanted <= 1.0 + TOLERANCE else math.ceil(ratio)
        return self.wanted if ratio / len(present) >= 1.0 - TOLERANCE else math.ceil(ratio)


class KnativePodAutoscaler(PeerPool):
    """Knative's autoscaler (KPA) on concurrency: 70 % of the slots, decisions every 2 s.

    Stable window 60 s; panic window 6 s, from twice the ready workers' capacity on, until a stable window has passed.
    At most half of the workers leave in one decision, and the last one leaves 30 s after the stable window has become
    empty. A task that arrives at zero causes a decision at once, by the activator.
    """

    name = "kpa"
    tick_seconds = 2.0
    stable_seconds, panic_seconds, grace_seconds = 60, 6, 30
    target = 0.7
    panic_share = 2.0

    def begin(self) -> None:
        """Sample the concurrency every second, decide every two."""
        self._samples: deque[int] = deque(maxlen=self.stable_seconds)
        self._panic_since: float | None = None
        self._panic_size = 0
        self._empty_since: float | None = None
        self.timeline.every(1.0, self._sample)
        self.timeline.every(self.tick_seconds, self._decide, self.random.uniform(0, self.tick_seconds))

    def arrive(self, task: Task) -> None:
        """Take in a task; at zero the activator asks for a worker at once."""
        super().arrive(task)
        if self.wanted == 0:
            self.scale(1)

    def _sample(self) -> None:
        self._samples.append(self.busy() + len(self.source.waiting))

    def _wanted_for(self, seconds: int) -> int:
        recent = list(self._samples)[-seconds:]
        return math.ceil(sum(recent) / max(len(recent), 1) / (self.slots * self.target))

    def _decide(self) -> None:
        now, ready = self.timeline.now, max(1, self.ready)
        stable, panic = self._wanted_for(self.stable_seconds), self._wanted_for(self.panic_seconds)
        if panic / ready >= self.panic_share:
            self._panic_since = now
        elif self._panic_since is not None and now - self._panic_since > self.stable_seconds:
            self._panic_since, self._panic_size = None, 0
        size = max(stable, ready // 2 if stable else 0)
        if self._panic_since is not None:
            self._panic_size = max(self._panic_size, panic, stable)
            size = self._panic_size
        if size:
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = now
        if not size and self._empty_since is not None and now - self._empty_since < self.grace_seconds:
            size = min(1, self.wanted)
        self.scale(size)


PEERS: tuple[type[PeerPool], ...] = (Keda, KedaTuned, KnativePodAutoscaler, CpuAutoscaler)
