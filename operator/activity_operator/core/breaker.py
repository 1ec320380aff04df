"""The start breaker: when new pods fail to start a worker, it stops growth, names the cause and tries again later."""

import math
from dataclasses import replace

from activity_operator.api.conditions import Reason
from activity_operator.core.decision import Breaker
from activity_operator.core.fleet import START_DEADLINE_SECONDS, Member
from activity_operator.core.observation import DeploymentFacts, Observation
from activity_operator.core.situation import Situation
from activity_worker.contract import OOM_KILLED

#: Seconds from a failed start to the next try, by number of failures in a row; the last delay repeats.
RETRY_DELAYS_SECONDS = (0.0, 5.0, 10.0, 20.0, 40.0, 80.0)

#: Seconds without a report after which a running container is replaced. The worker's limit for importing the handler is
#: 120 s; the rest is margin for a busy node.
GIVE_UP_SECONDS = 180.0

#: Seconds from the deletion of a failed pod within which the ReplicaSet creates its successor.
SUCCESSOR_SECONDS = 3.0

#: Share of the started workers by which a pool may grow at a time while a few of its pods fail to start.
GROWTH_STEP = 0.25

#: Seconds until the next decision after a breaker has closed: a pod's times are whole seconds.
CLOSED_SECONDS = 1.0

_IMAGE = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError"}
_START = {"RunContainerError", "StartError", "ContainerCannotRun"}
#: Exit codes of SIGTERM and SIGKILL. The kubelet sends them to a container that fails its liveness probe.
_KILLED = {143, 137}
_OUR_IMAGE = "is handlerImage built FROM the activity-worker image, with its entrypoint kept?"

#: Characters of a message: the limit of an Event.
MAX_MESSAGE = 1024


def retry_at(breaker: Breaker) -> float | None:
    """Return the Unix time of the next try, None while the breaker is closed."""
    if not breaker.open:
        return None
    return breaker.opened_at + RETRY_DELAYS_SECONDS[min(breaker.trips, len(RETRY_DELAYS_SECONDS)) - 1]


def watch_starts(situation: Situation, breaker: Breaker) -> tuple[Breaker, Member | None]:
    """Return the breaker after this observation, and the failed pod to replace if a try is due.

    A report from a pod that started after the breaker opened closes the breaker, unless another pod still fails to
    start: then growth goes on in steps (`workers_allowed`). The breaker also closes when no pod is starting any more.
    Reports of older workers do not count. The first try is due when the breaker opens. Every revision begins with a
    closed breaker.
    """
    observation, revision = situation.observation, situation.revision
    revision_members = situation.fleet.of(revision)
    if breaker.revision != revision:
        breaker = Breaker()
    succeeded = breaker.succeeded or (breaker.open and any(_came_since(m, breaker) for m in revision_members))
    if succeeded and not _others_fail(observation, revision_members, breaker):
        return Breaker(), None
    failing = next((m for m in revision_members if failure(m) is not None), None)
    refusal = _refusal(observation.deployments, revision)
    failed = None
    if failing is not None:
        breaker, failed = _failed(observation, failing, breaker)
    elif refusal is not None:
        breaker = _refused(observation, refusal, breaker)
    else:
        breaker = _without_evidence(observation, revision_members, revision, breaker)
    succeeded = succeeded and failed is None
    return (replace(breaker, revision=revision, succeeded=succeeded) if breaker.open else breaker), failed


def workers_allowed(situation: Situation, breaker: Breaker) -> int:
    """Return the size up to which the pool may grow while the breaker is open.

    Failed pods beside more workers that started may be the fault of a node. So one pod more than the failed one may
    start, on another node. Once such a pod has reported, growth goes on, by a quarter of the workers at a time.
    """
    present, members = situation.fleet.present, situation.fleet.of(situation.revision)
    if breaker.refused or not _most_started(members):
        return max(present, 1)
    unproven = sum(member.serving and member.report is None and not member.unheard for member in members)
    step = math.ceil(_started(members) * GROWTH_STEP)
    most = max(_failing(members), 1) + step if breaker.succeeded else 2
    return present + max(0, most - unproven)


def replacements(situation: Situation, breaker: Breaker) -> int:
    """Return how many workers the pool needs beyond its demand, in place of pods that fail to start beside others."""
    members = situation.fleet.of(situation.revision)
    if not breaker.open or breaker.refused or not _most_started(members):
        return 0
    failing = _failing(members) or int(_successor_starts(members, breaker))
    return failing if breaker.succeeded else min(failing, 1)


def _started(members: tuple[Member, ...]) -> int:
    return sum(member.serving and member.report is not None for member in members)


def _failing(members: tuple[Member, ...]) -> int:
    return sum(failure(member) is not None for member in members)


def _most_started(members: tuple[Member, ...]) -> bool:
    return _failing(members) < _started(members)


def _successor_starts(members: tuple[Member, ...], breaker: Breaker) -> bool:
    """Whether the pod that replaced the failed one is starting."""
    first, last = math.floor(breaker.opened_at), breaker.opened_at + SUCCESSOR_SECONDS
    return any(member.report is None and first <= member.pod.created <= last for member in members)


def _others_fail(observation: Observation, members: tuple[Member, ...], breaker: Breaker) -> bool:
    """Whether pods fail beside more that started, or the failed pod's successor may do so."""
    if breaker.refused or not _most_started(members):
        return False
    awaited = _awaited(observation.deployments, members[0].pod.revision) > len(members)
    return _failing(members) > 0 or awaited or _successor_starts(members, breaker)


def next_decision_at(situation: Situation, breaker: Breaker) -> float | None:
    """Return the Unix time at which the breaker must be decided again, None if it stays closed.

    It is the time of the next try, or one second from now in two cases: a report closed the breaker while another pod
    still fails to start, or a try is due and no pod is wanted, so that the next decision closes the breaker.
    """
    observation, revision = situation.observation, situation.revision
    revision_members = situation.fleet.of(revision)
    again = not breaker.open and any(failure(member) is not None for member in revision_members)
    needless = breaker.trying and not _under_way(observation, revision_members, revision)
    return observation.now + CLOSED_SECONDS if again or needless else retry_at(breaker)


def replicas_allowed(breaker: Breaker, members: tuple[Member, ...], planned: int, *, cut: bool) -> int:
    """Return the replicas for a revision whose pods the API server refuses: its present pods, plus one during a try.

    A ReplicaSet that lacks pods retries with a growing delay of up to a quarter of an hour; raising its replicas makes
    it try at once. `planned` are the replicas without this rule, `cut` says that the breaker lowered them.
    """
    if not breaker.refused:
        return planned
    present = len(members)
    if not breaker.trying or any(member.report is None for member in members):
        return min(planned, present)
    return present + 1 if cut or planned > present else planned


def _failed(observation: Observation, failing: Member, breaker: Breaker) -> tuple[Breaker, Member | None]:
    reason, message = failure(failing) or ("", "")
    if not breaker.open:
        breaker = Breaker(1, observation.now)
    due = retry_at(breaker)
    if due is not None and observation.now >= due and not _may_still_come(observation, failing):
        return Breaker(breaker.trips + 1, observation.now, reason, message), failing
    return Breaker(breaker.trips, breaker.opened_at, reason, message), None


def _may_still_come(observation: Observation, failing: Member) -> bool:
    """Whether the pod's container runs and may still be importing its handler.

    How the previous container ended does not matter: if the operator was down, this one may already have a task.
    """
    pod = failing.pod
    if not pod.running_since or failing.failed_start:
        return False
    return observation.now - max(pod.running_since, observation.leader_since) < GIVE_UP_SECONDS


def _refused(observation: Observation, refusal: tuple[str, str], breaker: Breaker) -> Breaker:
    """Return the breaker when the API server refuses to create pods. The ReplicaSet makes the first tries itself."""
    trips = max(breaker.trips, 1)
    if breaker.trying or not breaker.open:
        return Breaker(trips + 1, observation.now, *refusal, refused=True)
    due = retry_at(breaker) or observation.now
    return Breaker(trips, breaker.opened_at, *refusal, refused=True, trying=observation.now >= due)


def _without_evidence(
    observation: Observation, revision_members: tuple[Member, ...], revision: str, breaker: Breaker
) -> Breaker:
    """Return the breaker when no start fails now: a pod is starting, or no pod is wanted."""
    if not breaker.open:
        return Breaker()
    if _under_way(observation, revision_members, revision):
        return breaker
    if not breaker.refused or breaker.trying:
        return Breaker()
    due = retry_at(breaker)
    return replace(breaker, trying=due is not None and observation.now >= due)


def _under_way(observation: Observation, revision_members: tuple[Member, ...], revision: str) -> bool:
    """Whether a pod of the revision is starting or still has to be created."""
    return any(member.report is None for member in revision_members) or _awaited(
        observation.deployments, revision
    ) > len(revision_members)


def failure(member: Member) -> tuple[str, str] | None:
    """Return reason and message if this pod failed to start a worker, None while it may still report.

    A new leader has no reports yet, so a working pod whose container once restarted resembles a failed start. It is not
    one if it is Ready or has run since before this leader's term.
    """
    pod = member.pod
    if member.report is not None or member.unheard or pod.ready:
        return None
    if pod.waiting_reason in _IMAGE:
        return Reason.IMAGE_PULL_FAILED, f"pod {pod.name}: {pod.waiting_reason}: {pod.waiting_message}"[:MAX_MESSAGE]
    if pod.waiting_reason in _CONFIG:
        return Reason.WORKERS_NOT_READY, f"pod {pod.name}: {pod.waiting_reason}: {pod.waiting_message}"[:MAX_MESSAGE]
    if pod.waiting_reason in _START or pod.last_exit_reason in _START:
        text = pod.waiting_message or pod.last_exit_reason
        return Reason.NO_RUNTIME, f"pod {pod.name}: the image has no activity-worker to start: {text}"[:MAX_MESSAGE]
    if member.failed_start:
        text = f"pod {pod.name}: the worker ended before it was ready: {member.failed_start}"
        return Reason.WORKER_CRASHED, text[:MAX_MESSAGE]
    if pod.last_exit_code == 0:
        return Reason.NO_RUNTIME, f"pod {pod.name} ended with exit code 0 and without a report: {_OUR_IMAGE}"
    if pod.last_exit_code in _KILLED and pod.last_exit_reason != OOM_KILLED:
        how = (
            f"pod {pod.name} was killed without a report (exit code {pod.last_exit_code}), as one that answers no probe"
        )
        return Reason.NO_RUNTIME, f"{how}: {_OUR_IMAGE}"
    if pod.last_exit_code is not None:
        return Reason.WORKER_CRASHED, _crash(pod.name, pod.last_exit_code, pod.last_exit_reason)
    if pod.running_since and member.never_started:
        return Reason.NO_RUNTIME, (
            f"pod {pod.name} has run for more than {START_DEADLINE_SECONDS:.0f} s without a report: {_OUR_IMAGE}"
        )
    return None


def _came_since(member: Member, breaker: Breaker) -> bool:
    """Whether this worker started and reported after the breaker opened. A pod's times are whole seconds.

    If the API server refused pods, only a pod that was created later proves that it accepts them again.
    """
    if member.report is None or member.report.reported_at <= breaker.opened_at:
        return False
    pod = member.pod
    if breaker.refused:
        return pod.created > breaker.opened_at
    return max(pod.created, pod.running_since, pod.ready_since) >= math.floor(breaker.opened_at)


def _awaited(deployments: tuple[DeploymentFacts, ...], revision: str) -> int:
    """Return how many pods the revision should have. The watch shows the successor of a deleted pod only later."""
    return sum(deployment.replicas for deployment in deployments if deployment.revision == revision)


def _crash(pod: str, code: int, reason: str) -> str:
    how = f"exit code {code}" if reason in {"", "Error", "Completed"} else f"{reason}, exit code {code}"
    return f"pod {pod}: the worker ended before its first report ({how}); `kubectl logs {pod} --previous` says why"


def _refusal(deployments: tuple[DeploymentFacts, ...], revision: str) -> tuple[str, str] | None:
    for deployment in deployments:
        if deployment.revision == revision and deployment.failure:
            quota = "quota" in deployment.failure.lower()
            reason = Reason.QUOTA_EXCEEDED if quota else Reason.POD_TEMPLATE_REJECTED
            return reason, deployment.failure[:MAX_MESSAGE]
    return None
