"""Pods joined with what their workers said: who serves, who leaves, who never came."""

from dataclasses import dataclass
from functools import cached_property

from activity_operator.api.spec import PoolSpec
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import Observation, PodFacts, WorkerFacts
from activity_worker.contract import WorkerState

#: Intervals without a report after which a worker is stalled, whatever `reports.timeoutSeconds` says.
STALLED_INTERVALS = 3
#: Seconds for which a running container may keep silent before it counts as one without our runtime.
START_DEADLINE_SECONDS = 60.0
#: pod-deletion-cost of a cordoned worker: below every pod that has none (0).
CORDON_COST = -1000
#: Seconds without a task after which a free slot is idle; a shorter gap lies between two tasks of a backlog.
IDLE_GRACE_SECONDS = 0.5


@dataclass(frozen=True)
class Member:
    """One pod of the pool, and its worker's last word if there is one."""

    pod: PodFacts
    report: WorkerFacts | None
    stalled: bool
    never_started: bool
    idle_for: float
    #: Why its worker ended before it ever worked; such a word counts as none.
    failed_start: str = ""
    #: Whether it has worked since a former leader's time and not reported to this one: what it does is unknown.
    unheard: bool = False

    @property
    def cordoned(self) -> bool:
        """Whether it has been told to take no new lease: its deletion cost says so, also after a leader change.

        Another cost than ours is somebody else's: some autoscalers of nodes rank all pods by it.
        """
        return self.pod.deletion_cost == CORDON_COST

    @property
    def drained(self) -> bool:
        """Whether it said that it holds nothing and asks for nothing any more; terminal."""
        return self.report is not None and self.report.state in {WorkerState.DRAINED, WorkerState.STOPPED}

    @property
    def serving(self) -> bool:
        """Whether it counts as capacity: not leaving, not stalled. One that has yet to report does count."""
        leaving = (
            self.cordoned or self.drained or (self.report is not None and self.report.state is WorkerState.STOPPING)
        )
        return not (leaving or self.stalled)

    @property
    def working(self) -> bool:
        """Whether it serves and has said so itself."""
        return self.serving and self.report is not None and self.report.state is WorkerState.RUNNING

    @property
    def busy(self) -> int:
        """Slots with a task, as last heard."""
        return 0 if self.report is None else self.report.busy

    @property
    def slots(self) -> int:
        """Tasks that it can run at once, as last heard."""
        return 0 if self.report is None else self.report.slots

    @property
    def idle(self) -> bool:
        """Whether it has a free slot that has waited for a task long enough to prove that none waits."""
        return self.busy < self.slots and self.idle_for >= IDLE_GRACE_SECONDS


@dataclass(frozen=True)
class Fleet:
    """All pods of one pool that count, that is neither ended nor already being deleted."""

    members: tuple[Member, ...]

    @cached_property
    def serving(self) -> tuple[Member, ...]:
        """Members that count as capacity."""
        return tuple(member for member in self.members if member.serving)

    @cached_property
    def working(self) -> tuple[Member, ...]:
        """Members that serve and have said so."""
        return tuple(member for member in self.members if member.working)

    @cached_property
    def stalled(self) -> tuple[Member, ...]:
        """Members that fell silent."""
        return tuple(member for member in self.members if member.stalled)

    @cached_property
    def unheard(self) -> int:
        """How many serve of whom this leader has yet to hear: each may have a task."""
        return sum(1 for member in self.serving if member.unheard)

    @cached_property
    def inflight(self) -> int:
        """Tasks that run on serving members."""
        return sum(member.busy for member in self.serving)

    @cached_property
    def running_tasks(self) -> int:
        """Tasks that run anywhere in the pool, also on members that leave or fell silent."""
        return sum(member.busy for member in self.members)

    @cached_property
    def present(self) -> int:
        """How many places are taken: by members that serve and by those that fell silent, which may be working."""
        return len(self.serving) + len(self.stalled)

    def of(self, revision: str) -> tuple[Member, ...]:
        """Return the members of one revision."""
        return tuple(member for member in self.members if member.pod.revision == revision)


def join_reports(spec: PoolSpec, observation: Observation) -> Fleet:
    """Join pods and reports."""
    reports = {worker.pod_uid: worker for worker in observation.workers}
    pods = (pod for pod in observation.pods if not pod.deleting and pod.phase not in {"Failed", "Succeeded"})
    return Fleet(tuple(_member(spec, observation, pod, reports.get(pod.uid)) for pod in pods))


def stalled_after(spec: PoolSpec, worker: WorkerFacts) -> float:
    """Return the Unix time from which a worker that keeps silent is stalled."""
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
    return Member(pod, report, stalled=stalled, never_started=False, idle_for=idle_for)


def _never_started(spec: PoolSpec, observation: Observation, pod: PodFacts) -> bool:
    """Whether a pod that never reported surely runs nothing of ours, so that it may go without a drain.

    One whose container runs gets the benefit of the doubt: after a change of leader nobody has reported yet.
    """
    if pod.ready:
        return False
    if not pod.running_since:
        return True
    due = given_up_at(spec, observation, pod)
    return due is not None and observation.now >= due


def given_up_at(spec: PoolSpec, observation: Observation, pod: PodFacts) -> float | None:
    """Return the Unix time from which a running container that is not ready and never reported runs nothing of ours.

    If it is older than this leader and its revision has had reports, the doubt never ends (None): a worker cut off from
    us with its node looks the same. Of a former revision nobody knows whether it had any: those are given up as late as
    the stalled are.
    """
    if pod.running_since >= observation.leader_since:
        return pod.running_since + START_DEADLINE_SECONDS
    if pod.revision == observation.pool.proven_revision:
        return None
    former = pod.revision != revision_of(spec)
    return observation.leader_since + max(START_DEADLINE_SECONDS, spec.stalled.deadline_seconds if former else 0.0)
