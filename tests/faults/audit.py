"""Who wrote, in which order, and whether they held the Lease: from the API server's own audit log.

The resourceVersion in an answer tells the order of all writes for certain, because one etcd counts them all. A removal
has none in its answer, nor has a record of a lease (its answer is not logged): for them times decide, and only what
can have happened at no moment of a term counts.
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
#: What is logged: the writes of what the operator writes, with their answers.
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
                # Their answers carry the tokens of tasks.
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

    `user` is the last part of the caller's name: of a ServiceAccount its own; `agent` that of its User-Agent: what each
    of the controllers that are one user calls itself. `version` is the resourceVersion of the object after it, 0 where
    the answer does not tell. `holder` is the holderIdentity that a write of a Lease left behind.
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
    """The record of the Lease named `holder` (a replica; "" for nobody) from one write of it to the next."""

    holder: str
    began: Write
    ended: Write | None

    def spans(self, version: int) -> bool:
        """Whether the write that made this resourceVersion fell into it."""
        return self.began.version < version and (self.ended is None or version <= self.ended.version)

    def touches(self, write: Write) -> bool:
        """Whether some moment of the write can have been one of this term."""
        return self.began.received <= write.answered and (self.ended is None or write.received <= self.ended.answered)


def begin(folder: Path) -> None:
    """Forget what was logged so far."""
    os.truncate(audit_log(folder), 0)


def writers(folder: Path, namespaces: Iterable[str]) -> list[Write]:
    """Return all writes in these namespaces since `begin`, refused ones too, in the order of their answers."""
    wanted = set(namespaces)
    with audit_log(folder).open(encoding="utf-8", errors="replace") as log:
        found = [_write(json.loads(line)) for line in log if line.endswith("}\n") and "dryRun=All" not in line]
    return sorted((one for one in found if one.namespace in wanted), key=lambda one: one.answered)


def terms(writes: Iterable[Write], system: str, lease: str) -> list[Term]:
    """Return who held a Lease of the operators' namespace, in order."""
    made = [one for one in writes if one.resource == "leases" and (one.namespace, one.name) == (system, lease)]
    made = sorted((one for one in made if one.code < 300), key=lambda one: one.version)
    turns = [
        one for before, one in zip([None, *made], made, strict=False) if before is None or before.holder != one.holder
    ]
    return [Term(one.holder.rpartition("_")[0], one, after) for one, after in zip_longest(turns, turns[1:])]


def trespasses(writes: Sequence[Write], system: str, lease: str, replicas: Iterable[str]) -> list[str]:
    """Say which writes of replicas to pools, Deployments, pods and records took effect while another held the Lease.

    Creating a record is nobody's privilege: a former leader's polls bring tasks after its term. Nor is taking one back
    that nobody has touched since. A write that was refused took no effect, nor did one that left the object as another
    write had made it.
    """
    held, known = terms(writes, system, lease), set(replicas)
    said = [] if held else ["the audit log tells of nobody who ever held the Lease"]
    for one in _first_of_each(writes):
        if one.user not in known or not _guarded(one, system) or _takes_back(one, writes):
            continue
        own = [term for term in held if term.holder == one.user]
        if not any(term.spans(one.version) if one.version else term.touches(one) for term in own):
            said.append(f"{one} took effect while {_holder(held, one)} held the Lease")
    return said


def _guarded(one: Write, system: str) -> bool:
    if one.namespace == system:
        return one.resource == "secrets" and one.name.startswith(_RECORD) and one.verb != "create"
    return one.resource.partition("/")[0] in _OF_POOLS


def _takes_back(removal: Write, writes: Sequence[Write]) -> bool:
    """Whether the last that was written of a record before its removal is that the same replica made it."""
    if removal.verb != "delete" or removal.resource != "secrets":
        return False
    before = [one for one in writes if one.code < 300 and one.name == removal.name and one.answered < removal.answered]
    return bool(before) and (before[-1].verb, before[-1].user) == ("create", removal.user)


def _first_of_each(writes: Iterable[Write]) -> list[Write]:
    """Return the writes that took effect: of those with one resourceVersion the first."""
    made: dict[tuple[str, str, str, int], Write] = {}
    untold = []
    for one in writes:
        if one.code >= 300:
            continue
        if one.version:
            made.setdefault((one.resource.partition("/")[0], one.namespace, one.name, one.version), one)
        else:
            untold.append(one)
    return [*made.values(), *untold]


def _holder(held: Iterable[Term], one: Write) -> str:
    found = [term.holder for term in held if (term.spans(one.version) if one.version else term.touches(one))]
    return (found or [""])[-1] or "nobody"


def _write(event: dict[str, Any]) -> Write:
    place, answer = event.get("objectRef") or {}, event.get("responseObject") or {}
    meta = answer.get("metadata") or {}
    sub = f"/{place['subresource']}" if "subresource" in place else ""
    told = event["verb"] != "delete" and answer.get("kind") != "Status"
    return Write(
        user=event["user"]["username"].rpartition(":")[2],
        verb=event["verb"],
        resource=f"{place.get('resource', '')}{sub}",
        namespace=place.get("namespace", ""),
        name=place.get("name") or meta.get("name", ""),
        code=int((event.get("responseStatus") or {}).get("code", 0)),
        version=int(meta.get("resourceVersion") or 0) if told else 0,
        received=_seconds(event["requestReceivedTimestamp"]),
        answered=_seconds(event["stageTimestamp"]),
        holder=str((answer.get("spec") or {}).get("holderIdentity") or "") if place.get("resource") == "leases" else "",
        agent=str(event.get("userAgent", "")).rpartition("/")[2],
    )


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
