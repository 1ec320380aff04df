"""Requests to the API server: counted by its own metrics, and by user from its audit log."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.bench.api_server import ApiServer

WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION", "CREATE", "UPDATE"})
READS = frozenset({"GET", "LIST"})
#: Everything that the operator may write by its ClusterRole and Role, except its Lease.
OPERATOR_WRITES = frozenset({"activitypools", "deployments", "pods", "secrets", "configmaps", "events", "tokenreviews"})

_SAMPLE = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

#: (verb in capitals, resource) -> number of requests.
Counts = Counter[tuple[str, str]]


async def so_far(api: ApiServer) -> Counts:
    """Return all requests since the API server's start, from its metrics.

    Reading them changes only the count of that page.
    """
    return parse(await api.text("/metrics"))


def parse(metrics: str) -> Counts:
    """Return the requests in a page of metrics."""
    counts: Counts = Counter()
    for sample in _SAMPLE.finditer(metrics):
        labels = dict(_LABEL.findall(sample["labels"]))
        counts[labels["verb"].upper(), labels["resource"]] += int(float(sample["value"]))
    return counts


def between(before: Counts, after: Counts) -> Counts:
    """Return the requests between two readings."""
    return Counter({what: count - before[what] for what, count in after.items() if count > before[what]})


def writes(counts: Counts, resources: Iterable[str] = OPERATOR_WRITES) -> Counts:
    """Return the writes of these resources, by default without Leases."""
    wanted = frozenset(resources)
    return Counter({what: count for what, count in counts.items() if what[0] in WRITES and what[1] in wanted})


def reads(counts: Counts) -> Counts:
    """Return GETs and LISTs. A watch is one long request and does not count as load."""
    return Counter({what: count for what, count in counts.items() if what[0] in READS})


def as_text(counts: Counts) -> str:
    """Return the counts as text, the largest first."""
    return ", ".join(f"{verb} {resource} {count}" for (verb, resource), count in counts.most_common()) or "none"


class AuditTail:
    """The audit log from now on: each user's requests.

    It is empty if `path` is None, where the cluster keeps no log.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._from = path.stat().st_size if path is not None else 0

    @property
    def present(self) -> bool:
        """Whether there is a log at all."""
        return self._path is not None

    def by_user(self) -> dict[str, Counts]:
        """Return each user's requests since this object was made."""
        found: dict[str, Counts] = {}
        if self._path is None:
            return found
        with self._path.open("rb") as log:
            log.seek(self._from)
            for line in log:
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue  # the last line may be incomplete
                resource = entry.get("objectRef", {}).get("resource", "")
                found.setdefault(entry["user"]["username"], Counter())[entry["verb"].upper(), resource] += 1
        return found
