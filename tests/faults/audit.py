"""Who wrote, in which order, and whether the writer held the Lease: read from the API server's audit log.

The resourceVersion in an answer gives the exact order of all writes, because one etcd counts them. A deletion's answer
has none, and the answers for lease records are not logged. Their order is taken from times, and a write counts as
outside a term only if no moment of it was inside.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

import yaml

from tests.servers.control_plane import audit_log

_RECORD = "lease-"
_OF_POOLS = frozenset({"activitypools", "deployments", "pods"})
#: The audit policy: log the operator's kinds of objects whenever they are written, with the answers.
POLICY = yaml.safe_dump(
    {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "omitManagedFields": True,
        "rules": [
            {
                "level": "RequestResponse",
                "verbs": ["create", "update", "patch", "delete", "deletecollection"],
                "resources": [
                    {
                        "group": "activitypools.dev",
                        "resources": ["activitypools", "activitypools/status", "activitypools/scale"],
                    },
                    {"group": "apps", "resources": ["deployments", "deployments/status", "deployments/scale"]},
                    {"group": "", "resources": ["pods", "pods/status", "pods/binding"]},
                    {"group": "coordination.k8s.io", "resources": ["leases"]},
                ],
            },
            {
                # The answers for Secrets contain task tokens, so only metadata is logged.
                "level": "Metadata",
                "verbs": ["create", "update", "patch", "delete", "deletecollection"],
                "resources": [{"group": "", "resources": ["secrets"]}],
            },
            {"level": "None"},
        ],
    }
)


@dataclass(frozen=True, slots=True)
class Write:
    """A write that the API server answered with `code`; `received` and `answered` in Unix seconds.

    `user` is the last part of the user's name; for a ServiceAccount, its own name. `agent` is the User-Agent, which
    tells the controllers apart that share a user. `version` is the object's resourceVersion after the write, 0 if the
    answer has none. `holder` is the holderIdentity in the Lease after a write of it.
    """

    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    version: int
    received: float
    answered: float
    holder: str = ""
    agent: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource} {self.name} by {self.user}"


@dataclass(frozen=True, slots=True)
class Term:
    """The time from one write of the Lease to the next, while its holder was `holder` (a replica, or "" for none)."""

    holder: str
    began: Write
    ended: Write | None

    def spans(self, version: int) -> bool:
        """Whether the write with this resourceVersion happened in the term."""
        return self.began.version < version and (self.ended is None or version <= self.ended.version)

    def touches(self, write: Write) -> bool:
        """Whether any moment of the write can be inside the term."""
        return self.began.received <= write.answered and (self.ended is None or write.received <= self.ended.answered)


def begin(folder: Path) -> None:
    """Truncate the audit log."""
    os.truncate(audit_log(folder), 0)


def writers(folder: Path, namespaces: Iterable[str]) -> list[Write]:
    """Return all writes in these namespaces since `begin`, also refused ones, in the order of their answers."""
    wanted = set(namespaces)
    with audit_log(folder).open(encoding="utf-8", errors="replace") as log:
        found = [_write(json.loads(line)) for line in log if line.endswith("}\n") and "dryRun=All" not in line]
    return sorted((one for one in found if one.namespace in wanted), key=lambda one: one.answered)


def terms(writes: Iterable[Write], system: str, lease: str) -> list[Term]:
    """Return the terms of a Lease in the operators' namespace, in order."""
    made = [one for one in writes if one.resource == "leases" and (one.namespace, one.name) == (system, lease)]
    made = sorted((one for one in made if one.code < 300), key=lambda one: one.version)
    turns = [
        one for before, one in zip([None, *made], made, strict=False) if before is None or before.holder != one.holder
    ]
    return [Term(one.holder.rpartition("_")[0], one, after) for one, after in zip_longest(turns, turns[1:])]


def former_leader_writes(writes: Sequence[Write], system: str, lease: str, replicas: Iterable[str]) -> list[str]:
    """Return one sentence for each write that took effect while another replica held the Lease.

    Only writes of replicas to pools, Deployments, pods and lease records count. Two are allowed: to create a record,
    because polls of a former leader bring tasks after its term, and to delete a record that only the same replica has
    written. A refused write had no effect; neither had a write that left the object unchanged.
    """
    held, known = terms(writes, system, lease), set(replicas)
    found = [] if held else ["the audit log has no holder of the Lease"]
    for one in _first_of_each(writes):
        if one.user not in known or not _guarded(one, system) or _takes_back(one, writes):
            continue
        own = [term for term in held if term.holder == one.user]
        if not any(term.spans(one.version) if one.version else term.touches(one) for term in own):
            found.append(f"{one} took effect while {_holder(held, one)} held the Lease")
    return found


def _guarded(one: Write, system: str) -> bool:
    if one.namespace == system:
        return one.resource == "secrets" and one.name.startswith(_RECORD) and one.verb != "create"
    return one.resource.partition("/")[0] in _OF_POOLS


def _takes_back(removal: Write, writes: Sequence[Write]) -> bool:
    """Whether the replica deletes a record that it created itself and that has not been written since."""
    if removal.verb != "delete" or removal.resource != "secrets":
        return False
    before = [one for one in writes if one.code < 300 and one.name == removal.name and one.answered < removal.answered]
    return bool(before) and (before[-1].verb, before[-1].user) == ("create", removal.user)


def _first_of_each(writes: Iterable[Write]) -> list[Write]:
    """Return the writes that took effect: the first of those that share a resourceVersion."""
    made: dict[tuple[str, str, str, int], Write] = {}
    unordered = []
    for one in writes:
        if one.code >= 300:
            continue
        if one.version:
            made.setdefault((one.resource.partition("/")[0], one.namespace, one.name, one.version), one)
        else:
            unordered.append(one)
    return [*made.values(), *unordered]


def _holder(held: Iterable[Term], one: Write) -> str:
    found = [term.holder for term in held if (term.spans(one.version) if one.version else term.touches(one))]
    return (found or [""])[-1] or "nobody"


def _write(event: dict[str, Any]) -> Write:
    place, answer = event.get("objectRef") or {}, event.get("responseObject") or {}
    meta = answer.get("metadata") or {}
    sub = f"/{place['subresource']}" if "subresource" in place else ""
    has_object = event["verb"] != "delete" and answer.get("kind") != "Status"
    return Write(
        user=event["user"]["username"].rpartition(":")[2],
        verb=event["verb"],
        resource=f"{place.get('resource', '')}{sub}",
        namespace=place.get("namespace", ""),
        name=place.get("name") or meta.get("name", ""),
        code=int((event.get("responseStatus") or {}).get("code", 0)),
        version=int(meta.get("resourceVersion") or 0) if has_object else 0,
        received=_seconds(event["requestReceivedTimestamp"]),
        answered=_seconds(event["stageTimestamp"]),
        holder=str((answer.get("spec") or {}).get("holderIdentity") or "") if place.get("resource") == "leases" else "",
        agent=str(event.get("userAgent", "")).rpartition("/")[2],
    )


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
