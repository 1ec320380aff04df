"""How conditions name a place, an identity, and what a service said."""

import re
from dataclasses import replace

from activity_operator.backlog.protocol import PollTarget, SourceProblemError
from activity_worker.wire.endpoint import region_of
from activity_worker.wire.errors import WireError

_MAX_SERVICE_WORDS = 300
#: What differs between two answers of the same kind and would make a new condition of each.
_REQUEST_ID = re.compile(r"\s*\(?(?:request ?id:?\s*)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\)?", re.IGNORECASE)


def unreachable(server: str, words: str) -> SourceProblemError:
    """Return the problem of a server that does not answer."""
    text = f"no answer from {server}: check its address in the pool's source and the network's rules for the operator"
    return SourceProblemError("BackendUnreachable", f"{text} ({words})")


def service_message(error: WireError) -> str:
    """Return the service's code and words, the same for two answers of the same kind."""
    return f"{error.code}: {_REQUEST_ID.sub('', error.message)[:_MAX_SERVICE_WORDS]}"


def caller(target: PollTarget) -> str:
    """Return as whom the operator calls."""
    return f"the role {target.role_arn}" if target.role_arn else "the operator's own identity"


def shown_place(target: PollTarget) -> str:
    """Return where the calls go."""
    region = place_of(target).region
    return f"{region} at {target.endpoint_url}" if target.endpoint_url else region


def place_of(target: PollTarget) -> PollTarget:
    """Return the place without the activity: the same for all pools whose calls may share a client."""
    return replace(target, arn="", region=target.region or region_of(target.arn))
