"""Parts of condition messages: the place of a source, the operator's identity there, and a service's error text."""

import re
from dataclasses import replace

from activity_operator.backlog.protocol import PollTarget, SourceProblemError
from activity_worker.wire.endpoint import region_of
from activity_worker.wire.errors import WireError

_MAX_SERVICE_WORDS = 300
#: A request ID differs between two equal errors; without its removal each error would change the condition.
_REQUEST_ID = re.compile(r"\s*\(?(?:request ?id:?\s*)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\)?", re.IGNORECASE)


def unreachable(server: str, words: str) -> SourceProblemError:
    """Return the source problem for a server that does not answer."""
    text = f"no answer from {server}: check its address in the pool's source and the network's rules for the operator"
    return SourceProblemError("BackendUnreachable", f"{text} ({words})")


def service_message(error: WireError) -> str:
    """Return the service's error code and message without its request ID, so that equal errors have equal messages."""
    return f"{error.code}: {_REQUEST_ID.sub('', error.message)[:_MAX_SERVICE_WORDS]}"


def caller(target: PollTarget) -> str:
    """Return the AWS identity that the operator uses for its calls to the target."""
    return f"the role {target.role_arn}" if target.role_arn else "the operator's own identity"


def shown_place(target: PollTarget) -> str:
    """Return the region, and the endpoint if the target names one, for a message."""
    region = place_of(target).region
    return f"{region} at {target.endpoint_url}" if target.endpoint_url else region


def place_of(target: PollTarget) -> PollTarget:
    """Return the target without its activity: it is equal for all pools whose calls can share a client."""
    return replace(target, arn="", region=target.region or region_of(target.arn))
