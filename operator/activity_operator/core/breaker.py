"""The start breaker: when new pods do not come to report, stop growing, say why, try again later."""

import math
from dataclasses import replace

from activity_operator.api.conditions import Reason
from activity_operator.core.decision import Breaker
from activity_operator.core.fleet import START_DEADLINE_SECONDS, Member
from activity_operator.core.observation import DeploymentFacts, Observation
from activity_operator.core.situation import Situation
from activity_worker.contract import OOM_KILLED

#: Seconds from a failed start to the next try, by failures in a row; the last one repeats.
RETRY_DELAYS_SECONDS = (0.0, 5.0, 10.0, 20.0, 40.0, 80.0)

#: Seconds of silence after which a running container is replaced: more than a handler's import may take (120 s in the
#: runtime), on a busy node too.
GIVE_UP_SECONDS = 180.0

#: Seconds for which a breaker that has just been closed looks at no failed start: a pod's times are whole seconds.
CLOSED_SECONDS = 1.0

_IMAGE = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError"}
_START = {"RunContainerError", "StartError", "ContainerCannotRun"}
#: Ends by SIGTERM and SIGKILL: of a container that never reported, the kubelet's, because its liveness probe failed.
_KILLED = {143, 137}
_OUR_IMAGE = "is handlerImage built FROM the activity-worker image, with its entrypoint kept?"

#: Characters of a message: what an Event carries.
MAX_MESSAGE = 1024


def retry_at(breaker: Breaker) -> float | None:
    """Return the Unix time of the next try, None while the breaker is closed."""
    if not breaker.open:
        return None
    return breaker.opened_at + RETRY_DELAYS_SECONDS[min(breaker.trips, len(RETRY_DELAYS_SECONDS)) - 1]


def watch_starts(situation: Situation, breaker: Breaker) -> tuple[Breaker, Member | None]:
    """Return the breaker after what is seen, and the pod to replace when a try is due.

    A report from a pod that came up since closes it, and so does the end of all evidence: nobody is starting any more.
    Reports of workers that were there before say nothing about starts. The first try is due when the breaker opens.
    Another revision begins with a closed one.
    """
    observation, revision = situation.observation, situation.revision
    revision_members = situation.fleet.of(revision)
    if breaker.revision != revision:
        breaker = Breaker()
    if breaker.open and any(_came_since(m, breaker) for m in revision_members):
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
    return (replace(breaker, revision=revision) if breaker.open else breaker), failed


def due_at(situation: Situation, breaker: Breaker) -> float | None:
    """Return the Unix time of the next try, or of its end.

    Soon where somebody's report has closed it though another start fails, and where a try is due that nobody needs: the
    next look closes it.
    """
    observation, revision = situation.observation, situation.revision
    revision_members = situation.fleet.of(revision)
    again = not breaker.open and any(failure(member) is not None for member in revision_members)
    needless = breaker.trying and not _under_way(observation, revision_members, revision)
    return observation.now + CLOSED_SECONDS if again or needless else retry_at(breaker)


def replicas_allowed(breaker: Breaker, members: tuple[Member, ...], planned: int, *, cut: bool) -> int:
    """Return the replicas that a revision whose pods are refused gets: the pods it has, and one more for a try.

    A ReplicaSet that is left wanting tries less and less often, after some minutes once in a quarter of an hour; one
    that is asked anew tries at once. `planned` is what it would get, `cut` whether the breaker made that less.
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
    """Whether its container runs and is silent for less time than a large handler may take to be imported.

    How the container before it ended does not matter: this one may have a task already, if the operator was silent.
    """
    pod = failing.pod
    if not pod.running_since or failing.failed_start:
        return False
    return observation.now - max(pod.running_since, observation.leader_since) < GIVE_UP_SECONDS


def _refused(observation: Observation, refusal: tuple[str, str], breaker: Breaker) -> Breaker:
    """Return the breaker when pods are not even created; its first tries are the ReplicaSet's own."""
    trips = max(breaker.trips, 1)
    if breaker.trying or not breaker.open:
        return Breaker(trips + 1, observation.now, *refusal, refused=True)
    due = retry_at(breaker) or observation.now
    return Breaker(trips, breaker.opened_at, *refusal, refused=True, trying=observation.now >= due)


def _without_evidence(
    observation: Observation, revision_members: tuple[Member, ...], revision: str, breaker: Breaker
) -> Breaker:
    """Return the breaker when nothing fails now: something starts, or nobody was asked to."""
    if not breaker.open:
        return Breaker()
    if _under_way(observation, revision_members, revision):
        return breaker
    if not breaker.refused or breaker.trying:
        return Breaker()
    due = retry_at(breaker)
    return replace(breaker, trying=due is not None and observation.now >= due)


def _under_way(observation: Observation, revision_members: tuple[Member, ...], revision: str) -> bool:
    """Whether somebody starts, or is asked for."""
    return any(member.report is None for member in revision_members) or _awaited(
        observation.deployments, revision
    ) > len(revision_members)


def failure(member: Member) -> tuple[str, str] | None:
    """Return reason and message when this pod failed to start a worker, None while it may still come.

    A new leader has not heard those who work. One whose container was restarted some day looks like a failed start
    then, and is none: it is Ready, or has run since before this leader's time.
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

    Where pods were refused, only one that was created later says that they no longer are.
    """
    if member.report is None or member.report.reported_at <= breaker.opened_at:
        return False
    pod = member.pod
    if breaker.refused:
        return pod.created > breaker.opened_at
    return max(pod.created, pod.running_since, pod.ready_since) >= math.floor(breaker.opened_at)


def _awaited(deployments: tuple[DeploymentFacts, ...], revision: str) -> int:
    """Return how many pods the revision should have; one just deleted has a successor that the watch shows later."""
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
