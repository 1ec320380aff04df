"""What each replica of the operator wrote, by the API server's audit log, and which one held the Lease then."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.e2e.harness import SYSTEM

USER = f"system:serviceaccount:{SYSTEM}:activity-operator"
READS = {"get", "list", "watch"}


@dataclass(frozen=True)
class Write:
    """One write of a replica that succeeded; `at` is when it was done, in Unix seconds."""

    at: float
    replica: str
    verb: str
    resource: str
    namespace: str
    name: str


class Audit:
    """The audit log from now on. `file` is None if this cluster keeps no log; then there are no writes."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._begin = file.stat().st_size if file is not None else 0

    def writes(self, since: float = 0.0) -> list[Write]:
        """Return the operator's writes since a time in Unix seconds, in the order in which they were done."""
        return sorted((write for write in self._all() if write.at >= since), key=lambda write: write.at)

    def _all(self) -> Iterator[Write]:
        if self._file is None:
            return
        with self._file.open("rb") as log:
            log.seek(self._begin)
            for line in log:
                if USER.encode() in line and line.endswith(b"\n"):
                    entry = json.loads(line)
                    if entry["verb"] not in READS and entry["responseStatus"].get("code", 500) < 300:
                        yield _write(entry)


def out_of_term(writes: Iterable[Write]) -> list[Write]:
    """Return the writes about pools by a replica that did not hold the Lease at that time.

    Writes in the operator's own namespace are exempt: every replica records the tasks from its polls, and labels its
    own pod.
    """
    found, holder = [], ""
    for write in writes:
        if write.resource == "leases":
            holder = write.replica
        elif write.namespace not in {"", SYSTEM} and write.replica != holder and holder:
            found.append(write)
    return found


def _write(entry: dict[str, Any]) -> Write:
    about = entry.get("objectRef", {})
    pods = entry["user"].get("extra", {}).get("authentication.kubernetes.io/pod-name", ["?"])
    return Write(
        at=datetime.fromisoformat(entry["stageTimestamp"]).timestamp(),
        replica=pods[0],
        verb=entry["verb"],
        resource="/".join(part for part in (about.get("resource"), about.get("subresource")) if part),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
    )
