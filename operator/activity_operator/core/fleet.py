"""Pods joined with the reports of their workers: which serve, which leave, which never started."""

from dataclasses import dataclass
from functools import cached_property

from activity_operator.api.spec import PoolSpec
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import Observation, PodFacts, WorkerFacts
from activity_worker.contract import WorkerState

#: Report intervals without a report after which a worker may be stalled, even if `reports.timeoutSeconds` is shorter.
STALLED_INTERVALS = 3
#: Seconds for which a container may run without a report; after that it counts as an image without our runtime.
START_DEADLINE_SECONDS = 60.0
#: pod-deletion-cost of a cordoned worker, below that of a pod without the annotation (0), and of a drained one. A
#: cordoned worker may miss a readiness probe while it works; the drained ones must then still go before it.
CORDON_COST, DRAINED_COST = -1000, -2000
#: Seconds without a task after which a free slot is idle; a shorter gap lies between two tasks of a backlog.
IDLE_GRACE_SECONDS = 0.5
#: Seconds without a task after which a worker whose polls have had no answer yet shows that no task waits.
JOINER_SECONDS = 5.0
#: Share of its slots' time above which a worker counts as saturated, however long its free slots waited for tasks.
SATURATED_SHARE = 0.9


@dataclass(frozen=True)
class Member:
    """One pod of the pool, with its worker's last report if there is one. `idle_for` is in seconds."""

    pod: PodFacts
    report: WorkerFacts | None
    stalled: bool
    never_started: bool
    idle_for: float
    #: Why the worker ended before its first task. `report` is then None.
    failed_start: str = ""
    #: Whether the pod has run since a former leader's term without a report to this leader: its tasks are unknown.
    unheard: bool = False
    #: Whether the worker fell silent together with many others, so that its report path is the suspect.
    excused: bool = False

    @property
    def cordoned(self) -> bool:
        """Whether the worker takes no new lease. The pod's deletion cost records it, also after a change of leader.

        Any other cost comes from another controller: some node autoscalers rank all pods by it.
        """
        return self.pod.deletion_cost in {CORDON_COST, DRAINED_COST}

    @property
    def drained(self) -> bool:
        """Whether the worker reported that it has no task and polls no more. This state is terminal."""
        return self.report is not None and self.report.state in {WorkerState.DRAINED, WorkerState.STOPPED}

    @cached_property
    def serving(self) -> bool:
        """Whether the pod counts as capacity: neither leaving nor stalled. A pod without a report counts as well."""
        leaving = (
            self.cordoned or self.drained or (self.report is not None and self.report.state is WorkerState.STOPPING)
        )
        return not (leaving or self.stalled)

    @cached_property
    def working(self) -> bool:
        """Whether the worker serves and has reported the state running."""
        return self.serving and self.report is not None and self.report.state is WorkerState.RUNNING

    @cached_property
    def polling(self) -> bool:
        """Whether the worker is working, and its polls do not fail."""
        return self.working and self.report is not None and self.report.poll_trouble is None

    @property
    def busy(self) -> int:
        """Slots with a task, by the last report."""
        return 0 if self.report is None else self.report.busy

    @property
    def slots(self) -> int:
        """Tasks that the worker can run at once, by the last report."""
        return 0 if self.report is None else self.report.slots

    @property
    def idle(self) -> bool:
        """Whether a slot has been free for long enough to prove that no task waits."""
        return self.busy < self.slots and self.idle_for >= IDLE_GRACE_SECONDS

    @property
    def stands_by(self) -> bool:
        """Whether a slot has been free for a while and none polls, although polls do not fail: so it was ordered."""
        return self.polling and self.idle and self.report is not None and not self.report.open_polls

    @property
    def shows_no_backlog(self) -> bool:
        """Whether the last report proves that a slot waited for a task, so that no task waited.

        The counters since the report before it tell more than its moment: a worker of short tasks often reports in the
        gap between two of them. Between reports, no news is no proof that the gap has lasted.
        """
        if self.report is None:
            return False
        use = self.report.use
        if self.busy < self.slots and (self.idle if use is None else self.report.idle_seconds >= IDLE_GRACE_SECONDS):
            return self._seeks_tasks
        if use is None or use.joined:
            return False
        if use.empty_polls:
            return True
        return use.busy_share <= SATURATED_SHARE and use.free_seconds(self.slots) >= IDLE_GRACE_SECONDS

    @property
    def witness(self) -> bool:
        """Whether the worker shows whether tasks wait.

        A worker whose polls fail shows nothing, and neither does a free slot without a poll, or one whose first poll
        has just been opened: it may be answered late.
        """
        return self.polling and (self.busy >= self.slots or not self.idle or self._seeks_tasks)

    @property
    def _seeks_tasks(self) -> bool:
        """Whether the free slots poll, and a poll of the worker has been answered or has been open for long enough."""
        if self.report is None:
            return False
        polls = self.report.open_polls or (self.report.use is not None and self.report.use.empty_polls)
        return bool(polls) and (self.report.answers > 0 or self.idle_for >= JOINER_SECONDS)


@dataclass(frozen=True)
class Fleet:
    """All pods of one pool that have neither ended nor are being deleted."""

    members: tuple[Member, ...]

    @cached_property
    def serving(self) -> tuple[Member, ...]:
        """Members that count as capacity."""
        return tuple(member for member in self.members if member.serving)

    @cached_property
    def working(self) -> tuple[Member, ...]:
        """Members that serve and have reported the state running."""
        return tuple(member for member in self.members if member.working)

    @cached_property
    def polling(self) -> tuple[Member, ...]:
        """Working members whose polls do not fail."""
        return tuple(member for member in self.members if member.polling)

    @cached_property
    def witnesses(self) -> tuple[Member, ...]:
        """Members that show whether tasks wait."""
        return tuple(member for member in self.members if member.witness)

    @cached_property
    def stalled(self) -> tuple[Member, ...]:
        """Members whose reports stopped."""
        return tuple(member for member in self.members if member.stalled)

    @cached_property
    def silent_ready(self) -> int:
        """Number of stalled members with a degraded report path whose pods are ready: nothing else speaks for a loss.

        They keep their places, and no other worker is started in their stead.
        """
        return sum(1 for member in self.stalled if member.excused and member.pod.ready)

    @cached_property
    def unheard(self) -> int:
        """Number of serving members that have not reported to this leader; each may have a task."""
        return sum(1 for member in self.serving if member.unheard)

    @cached_property
    def inflight(self) -> int:
        """Tasks that run on serving members."""
        return sum(member.busy for member in self.serving)

    @cached_property
    def running_tasks(self) -> int:
        """Tasks that run anywhere in the pool, also on members that are leaving or stalled."""
        return sum(member.busy for member in self.members)

    @cached_property
    def present(self) -> int:
        """Number of serving and stalled members; a stalled one may still work."""
        return len(self.serving) + len(self.stalled)

    def of(self, revision: str) -> tuple[Member, ...]:
        """Return the members of one revision."""
        return tuple(member for member in self.members if member.pod.revision == revision)


def join_reports(spec: PoolSpec, observation: Observation) -> Fleet:
    """Return the pods that have neither ended nor are being deleted, each with its worker's report."""
    reports = {worker.pod_uid: worker for worker in observation.workers}
    pods = (pod for pod in observation.pods if not pod.deleting and pod.phase not in {"Failed", "Succeeded"})
    return Fleet(tuple(_member(spec, observation, pod, reports.get(pod.uid)) for pod in pods))


def stalled_after(spec: PoolSpec, worker: WorkerFacts) -> float:
    """Return the Unix time at which this worker is stalled unless it reports before."""
    return worker.reported_at + max(spec.reports.timeout_seconds, STALLED_INTERVALS * worker.interval_seconds)


def _member(spec: PoolSpec, observation: Observation, pod: PodFacts, report: WorkerFacts | None) -> Member:
    if report is None or report.failed_start:
        never_started = _never_started(spec, observation, pod)
        if report is not None:
            return Member(pod, None, False, never_started, idle_for=0.0, failed_start=report.failed_start)
        unheard = not never_started and 0 < pod.running_since < observation.leader_since
        return Member(pod, None, False, never_started, idle_for=0.0, unheard=unheard)
    stalled = observation.now >= stalled_after(spec, report)
    idle_for = (
        report.idle_seconds + max(0.0, observation.now - report.reported_at) if report.busy < report.slots else 0.0
    )
    excused = report.pod_uid in observation.excused_workers
    return Member(pod, report, stalled=stalled, never_started=False, idle_for=idle_for, excused=excused)


def _never_started(spec: PoolSpec, observation: Observation, pod: PodFacts) -> bool:
    """Whether a pod without a report certainly runs no worker, so that it may go without a drain.

    A running container counts as a worker until `given_up_at`: a new leader has no reports yet.
    """
    if pod.ready:
        return False
    if not pod.running_since:
        return True
    due = given_up_at(spec, observation, pod)
    return due is not None and observation.now >= due


def given_up_at(spec: PoolSpec, observation: Observation, pod: PodFacts) -> float | None:
    """Return the Unix time from which a running, unready container without a report counts as running no worker.

    Return None (never) if the container is older than this leader's term and its revision has had reports: a worker on
    a node without a network looks the same. For a former revision it is unknown whether a worker ever reported, so its
    containers get the deadline of stalled workers.
    """
    if pod.running_since >= observation.leader_since:
        return pod.running_since + START_DEADLINE_SECONDS
    if pod.revision == observation.pool.proven_revision:
        return None
    former = pod.revision != revision_of(spec)
    return observation.leader_since + max(START_DEADLINE_SECONDS, spec.stalled.deadline_seconds if former else 0.0)
