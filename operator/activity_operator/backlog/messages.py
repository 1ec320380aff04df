"""Parts of condition messages: the place of a source, the operator's identity there, and a service's error text."""

import re
from dataclasses import replace

from activity_operator.backlog.protocol import PollTarget, SourceProblemError
from activity_worker.wire.endpoint import region_of
from activity_worker.wire.errors import WireError

_MAX_SERVICE_WORDS = 300
#: The caller's account, as services name a caller that they refuse.
_CALLER = re.compile(r"arn:aws[a-z-]*:(?:iam|sts)::(\d{12}):")
#: A request ID differs between two equal errors; without its removal each error would change the condition.
_REQUEST_ID = re.compile(r"\s*\(?(?:request ?id:?\s*)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\)?", re.IGNORECASE)


def unreachable(server: str, words: str) -> SourceProblemError:
    """Return the source problem for a server that does not answer."""
    text = f"no answer from {server}: check its address in the pool's source and the network's rules for the operator"
    return SourceProblemError("BackendUnreachable", f"{text} ({words})")


def unknown_region(target: PollTarget) -> SourceProblemError:
    """Return the source problem for a region that no partition of AWS has."""
    region = place_of(target).region
    or_arn = ", or the region in activityArn" if target.arn else ""
    text = f"'{region}' is no region of AWS: correct spec.aws.region{or_arn}"
    return SourceProblemError("WrongRegion", text)


def service_message(error: WireError) -> str:
    """Return the service's error code and message without its request ID, so that equal errors have equal messages."""
    return f"{error.code}: {_REQUEST_ID.sub('', error.message)[:_MAX_SERVICE_WORDS]}"


def caller(target: PollTarget) -> str:
    """Return the AWS identity that the operator uses for its calls to the target."""
    return f"the role {target.role_arn}" if target.role_arn else "the operator's own identity"


def account_of(arn: str) -> str:
    """Return the account in an ARN, "" if there is none."""
    parts = arn.split(":")
    return parts[4] if len(parts) > 5 else ""


def caller_account(error: WireError, target: PollTarget) -> str:
    """Return the account of the refused caller, "" if neither the service's message nor the role names it."""
    named = _CALLER.search(error.message)
    return named.group(1) if named else account_of(target.role_arn)


def shown_place(target: PollTarget) -> str:
    """Return the region, and the endpoint if the target names one, for a message."""
    region = place_of(target).region
    return f"{region} at {target.endpoint_url}" if target.endpoint_url else region


def place_of(target: PollTarget) -> PollTarget:
    """Return the target without its activity: it is equal for all pools whose calls can share a client."""
    return replace(target, arn="", domain="", task_list="", region=target.region or region_of(target.arn))
