"""PURE: names for calls to the API server and to the task service, by which faults and tables refer to them."""

from collections.abc import Mapping
from dataclasses import dataclass

#: The callers of the task service: the operator, or a worker.
OPERATOR, WORKER = "AWS", "worker"
#: The polls of the task services.
POLLS = ("GetActivityTask", "PollForActivityTask")
_OFTEN = (*POLLS, "SendTaskHeartbeat", "RecordActivityTaskHeartbeat", "CountPendingActivityTasks")
#: Calls that a process repeats as long as it lives: only their first occurrence in a scenario is struck.
PERIODIC = frozenset(
    {"PUT leases", "POST tokenreviews"} | {f"{caller} {call}" for caller in (OPERATOR, WORKER) for call in _OFTEN}
)
_LEASE_RECORD = "lease-"


@dataclass(frozen=True, slots=True)
class Call:
    """One call: its `name` ("PATCH activitypools/status", "AWS GetActivityTask"), and whether it only reads."""

    name: str
    reads: bool = False
    watches: str = ""

    @property
    def writes(self) -> bool:
        """Whether a crash around the call can leave work half done, as with every write and call to the service."""
        return not self.reads


def kube_call(method: str, path: str, query: Mapping[str, str], body: bytes = b"") -> Call:
    """Name a call to the API server. Lease records are Secrets that are recognized by their name."""
    parts = [part for part in path.split("/") if part]
    del parts[: 2 if parts[:1] == ["api"] else 3]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        del parts[:2]
    kind = parts[0] if parts else "discovery"
    record = kind == "secrets" and ("".join(parts[1:2]).startswith(_LEASE_RECORD) or _names_record(body))
    kind = "lease-records" if record else kind
    sub = f"/{parts[2]}" if len(parts) > 2 else ""
    if query.get("watch") in {"1", "true"}:
        return Call(f"WATCH {kind}", reads=True, watches=kind)
    verb = "LIST" if method == "GET" and len(parts) == 1 else method
    return Call(f"{verb} {kind}{sub}", reads=method == "GET")


def aws_call(target: str, caller: str = OPERATOR) -> Call:
    """Name a call to Step Functions or Amazon SWF by its X-Amz-Target."""
    operation = target.rpartition(".")[2]
    return Call(f"{caller} {operation}", reads=operation.startswith("Describe"))


def to_service(name: str) -> bool:
    """Whether a call of this name goes to the task service."""
    return name.partition(" ")[0] in {OPERATOR, WORKER}


def of_worker(name: str) -> bool:
    """Whether a call of this name is a worker's."""
    return name.partition(" ")[0] == WORKER


def event(kind: str, line: Mapping[str, object]) -> str:
    """Name an event of a watch, such as "ADDED pods". A bookmark has a name too, but no fault strikes it."""
    return f"{line.get('type', '?')} {kind}"


def _names_record(body: bytes) -> bool:
    return b'"name": "lease-' in body or b'"name":"lease-' in body
