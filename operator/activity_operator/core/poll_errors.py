"""Poll errors that workers report. While workers run, the operator does not poll, so it sees no poll error itself."""

from activity_operator.api.conditions import Reason
from activity_operator.api.spec import PoolSpec
from activity_operator.core import messages, probing
from activity_operator.core.situation import Situation
from activity_worker.contract import PollFault, PollTrouble


def poll_error(situation: Situation, *, counted: bool = False) -> tuple[Reason, str] | None:
    """Return reason and message if no worker with a free slot can poll, None if one can or every slot is busy.

    Workers that stand by get what the operator's open polls bring, so beside them a refused one is no fault of the
    pool. `counted` says that the operator itself can read the source, with the present URL.
    """
    free = [
        (member.pod.name, member.report.poll_trouble)
        for member in situation.fleet.working
        if member.report is not None and member.report.busy < member.report.slots and not member.stands_by
    ]
    errors = [(pod, error) for pod, error in free if error is not None]
    if not errors or len(errors) < len(free):
        return None
    served = situation.observation.source.open_polls and probing.counts_by_polls(situation)
    if served and any(member.stands_by for member in situation.fleet.working):
        return None
    pod, error = min(errors, key=lambda entry: entry[0])
    return _reason_and_message(situation.spec, pod, error, counted)


def _reason_and_message(spec: PoolSpec, pod: str, error: PollTrouble, counted: bool) -> tuple[Reason, str]:
    words = f"{error.code}: {error.message}" if error.message else error.code
    if spec.swf is not None:
        return _task_list_error(spec, spec.swf.domain, pod, error.fault, words)
    if spec.taskbroker is not None:
        return _taskbroker_error(spec, pod, error.fault, words)
    if spec.source_kind != "stepFunctions":
        return _counted_source_error(spec, pod, error.fault, words, counted)
    place = _place(spec)
    match error.fault:
        case PollFault.DENIED:
            identity = _identity(spec)
            text = (
                f"worker {pod} may not poll: allow states:GetActivityTask on {spec.arn} to {identity}, or correct its "
            )
            return Reason.ACCESS_DENIED, f"{text}credentials ({words})"
        case PollFault.MISSING:
            text = f"worker {pod} polls in vain: the activity {spec.arn} does not exist in {place}: create it, or "
            return Reason.ACTIVITY_NOT_FOUND, f"{text}correct spec.aws.region or spec.aws.endpointUrl ({words})"
        case PollFault.THROTTLED:
            text = f"the polls of worker {pod} are throttled in {place}: ask for a higher quota, or lower maxWorkers x "
            return Reason.THROTTLED, f"{text}slotsPerWorker there ({words})"
        case _:
            return _aws_unreachable(pod, place, words)


def _task_list_error(spec: PoolSpec, domain: str, pod: str, fault: PollFault, words: str) -> tuple[Reason, str]:
    """Return reason and message for a task list of Amazon SWF."""
    place = _place(spec)
    source = messages.source_name(spec)
    match fault:
        case PollFault.DENIED:
            identity = _identity(spec)
            text = f"worker {pod} may not poll {source}: allow swf:PollForActivityTask to {identity}, or correct its "
            return Reason.ACCESS_DENIED, f"{text}credentials ({words})"
        case PollFault.MISSING:
            text = (
                f"worker {pod} polls in vain: the domain {domain} does not exist in {place}: register it, or correct "
            )
            return Reason.DOMAIN_NOT_FOUND, f"{text}spec.source.swf.domain or spec.aws.region ({words})"
        case PollFault.THROTTLED:
            text = f"the polls of worker {pod} are throttled in {place}: ask for a higher quota, or lower maxWorkers x "
            return Reason.THROTTLED, f"{text}slotsPerWorker; a task list has at most 1,000 open polls ({words})"
        case _:
            return _aws_unreachable(pod, place, words)


def _place(spec: PoolSpec) -> str:
    """Return the region, and the endpoint if the spec names one."""
    return f"{spec.region} at {spec.aws.endpoint_url}" if spec.aws.endpoint_url else spec.region


def _identity(spec: PoolSpec) -> str:
    return f"the workers' identity (ServiceAccount {spec.service_account_name or 'default'})"


def _aws_unreachable(pod: str, place: str, words: str) -> tuple[Reason, str]:
    text = f"worker {pod} cannot poll {place}: check spec.aws.endpointUrl, spec.aws.region and the network's "
    return Reason.BACKEND_UNREACHABLE, f"{text}rules for the workers ({words})"


def _taskbroker_error(spec: PoolSpec, pod: str, fault: PollFault, words: str) -> tuple[Reason, str]:
    """Return reason and message for a taskbroker. A worker keeps the secrets that it was started with."""
    source = messages.source_name(spec)
    match fault:
        case PollFault.DENIED:
            text = f"worker {pod} may not use {source}: correct what spec.source.taskbroker.signingSecretRef names; if "
            return Reason.ACCESS_DENIED, f"{text}it is newer than the pod, delete the pod ({words})"
        case PollFault.THROTTLED:
            text = f"{source} refuses more calls: lower maxWorkers x slotsPerWorker, or give it more processors"
            return Reason.THROTTLED, f"{text} (worker {pod}: {words})"
        case _:
            text = f"worker {pod} cannot use {source}: check {messages.url_location(spec)}, tls, caSecretRef and the "
            return Reason.BACKEND_UNREACHABLE, f"{text}network's rules for the workers ({words})"


def _counted_source_error(spec: PoolSpec, pod: str, fault: PollFault, words: str, counted: bool) -> tuple[Reason, str]:
    """Return reason and message for a Redis queue or a task store. A worker keeps the URL that it was started with."""
    source = messages.source_name(spec)
    match fault:
        case PollFault.DENIED if counted and spec.url_secret_ref is not None:
            text = f"worker {pod} may not use {source}, which the operator can count: if the URL "
            text += (
                f"{messages.url_location(spec)} is newer than the pod, delete the pod; else correct its user's rights"
            )
            return Reason.ACCESS_DENIED, f"{text} ({words})"
        case PollFault.DENIED:
            text = f"worker {pod} may not use {source}: correct user, password or rights {messages.url_location(spec)}"
            return Reason.ACCESS_DENIED, f"{text} ({words})"
        case PollFault.THROTTLED:
            text = f"{source} refuses more work: give it more connections or lower maxWorkers x slotsPerWorker"
            return Reason.THROTTLED, f"{text} (worker {pod}: {words})"
        case _:
            text = f"worker {pod} cannot use {source}: check the URL {messages.url_location(spec)} and the network's "
            return Reason.BACKEND_UNREACHABLE, f"{text}rules for the workers ({words})"
