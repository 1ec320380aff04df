"""PURE: the result of every attempt at a task, and which fault caused it.

An attempt that timed out is lost, unless a fault killed its holder: a worker with the task, the owner in its lease's
record before the grant arrived, a process whose open poll the service answered, an operator that had no time to record
it, or an answer that the fault itself dropped.
"""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from activity_operator.leases.rules import GRANT_SECONDS

#: Seconds for which the service answers polls of a dead process, beyond the time it holds them: data buffered in
#: sockets.
PIPES_SECONDS = 2.0
#: Seconds within which an operator must record a task from its poll although its calls are refused or hang: two writes
#: of 5 s without an answer, and the waits between.
RECORDED_SECONDS = 15.0
OPERATOR = "activitypool-operator/"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One task of the service: its poller (`by`), and its times in seconds."""

    lease: str
    state: str
    by: str
    started_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a worker (`name` is its pod's) or of an operator (its replica's), with the tasks that it held."""

    name: str
    at: float
    fault: str
    held: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Claim:
    """A lease record got the worker of a pod as its owner, at a time in seconds."""

    lease: str
    pod_uid: str
    at: float


@dataclass(frozen=True, slots=True)
class Begun:
    """A handler began with a task; `holder` is the pod and its process."""

    lease: str
    holder: str
    at: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was observed: deaths, handlers that began, recorded leases, and answers that a fault dropped, by name.

    `holder_ends` is when a holder of `begun` was killed, by name.
    """

    deaths: Sequence[Death]
    begun: Sequence[Begun]
    recorded: frozenset[str]
    swallowed: Mapping[str, str]
    holder_ends: Mapping[str, float]
    hold_seconds: float


def owner_in(record: Mapping[str, Any]) -> str:
    """Return the UID of the owner's pod in a lease record (a Secret), "" without an owner."""
    owner = (record.get("data") or {}).get("owner", "")
    return str(json.loads(base64.b64decode(owner))["podUid"]) if owner else ""


def granted_late(claims: Iterable[Claim], pod_uid: str, now: float) -> frozenset[str]:
    """Return the leases whose owner the pod's worker has become so lately that the grant may not have reached it.

    After `GRANT_SECONDS` the operator itself counts on the owner's task heartbeats.
    """
    return frozenset(claim.lease for claim in claims if claim.pod_uid == pod_uid and now - claim.at < GRANT_SECONDS)


def timed_out(attempts: Iterable[Attempt], seen: Evidence) -> tuple[list[Attempt], dict[str, str]]:
    """Return the lost attempts, and for the others that timed out the fault, by lease."""
    lost, excused = [], dict[str, str]()
    for attempt in attempts:
        if attempt.state == "timed_out":
            fault = _fault(attempt, seen)
            if fault:
                excused[attempt.lease] = fault
            else:
                lost.append(attempt)
    return lost, excused


def _fault(attempt: Attempt, seen: Evidence) -> str:
    """Return the fault that killed the attempt's holder, "" if there is none."""
    if attempt.lease in seen.swallowed:
        return seen.swallowed[attempt.lease]
    for death in seen.deaths:
        if attempt.lease in death.held or _polled_by_the_dead(attempt, death, seen):
            return death.fault
    return ""


def _polled_by_the_dead(attempt: Attempt, death: Death, seen: Evidence) -> bool:
    """Whether the poll was of a process that was dead, or died before it could record or begin the task."""
    if attempt.lease in seen.recorded or any(one.lease == attempt.lease for one in seen.begun):
        return False
    since = death.at - attempt.started_at
    if attempt.by == f"{OPERATOR}{death.name}":
        return -seen.hold_seconds - PIPES_SECONDS <= since <= RECORDED_SECONDS
    if attempt.by.rpartition(":")[0] == death.name:
        return -seen.hold_seconds - PIPES_SECONDS <= since <= PIPES_SECONDS
    return False


def duplicates(seen: Evidence) -> list[Begun]:
    """Return where a handler began with a task while another handler, which had not been killed, had begun with it."""
    first: dict[str, Begun] = {}
    found = []
    for begun in seen.begun:
        before = first.get(begun.lease)
        if before is not None and seen.holder_ends.get(before.holder, float("inf")) > begun.at:
            found.append(begun)
        first[begun.lease] = begun
    return found
