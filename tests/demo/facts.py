"""What the API server and a worker's log say, reduced to what the demo shows."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from activity_operator.api.conditions import ConditionType

Raw = Mapping[str, Any]
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_ORDINARY_WAITS = frozenset({"", "ContainerCreating", "PodInitializing"})


@dataclass(frozen=True, slots=True)
class Pod:
    """A worker's pod. `trouble` is why its container cannot start or was killed, "" when all is well."""

    uid: str
    name: str
    running: bool = False
    ready: bool = False
    cordoned: bool = False
    leaving: bool = False
    restarts: int = 0
    trouble: str = ""

    @property
    def short(self) -> str:
        """The part of the name that tells workers of one pool apart."""
        return self.name.rpartition("-")[2]


@dataclass(frozen=True, slots=True)
class Pool:
    """What the operator says of the pool: its condition Ready, "" for each part while there is none."""

    ready: str = ""
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class TaskLine:
    """A line of a worker's log about a task, known by its lease; `ended` when it is the last about it."""

    lease: str
    ended: bool


def pod(raw: Raw) -> Pod:
    """Read a pod."""
    meta, status = raw["metadata"], raw.get("status", {})
    containers = status.get("containerStatuses") or [{}]
    state, last = containers[0].get("state", {}), containers[0].get("lastState", {})
    waits = state.get("waiting", {}).get("reason", "")
    killed = last.get("terminated", {}).get("reason", "")
    return Pod(
        uid=meta["uid"],
        name=meta["name"],
        running="running" in state,
        ready=_condition(status, "Ready").get("status") == "True",
        cordoned=DELETION_COST in (meta.get("annotations") or {}),
        leaving="deletionTimestamp" in meta,
        restarts=containers[0].get("restartCount", 0),
        trouble=waits if waits not in _ORDINARY_WAITS else killed if killed not in {"", "Completed"} else "",
    )


def pool(raw: Raw) -> Pool:
    """Read a pool's status."""
    found = _condition(raw.get("status", {}), ConditionType.READY)
    return Pool(found.get("status", ""), found.get("reason", ""), found.get("message", ""))


def replicas(raw: Raw) -> int:
    """Return the replicas that a Deployment asks for."""
    return int(raw["spec"].get("replicas") or 0)


def task_line(text: str) -> TaskLine | None:
    """Read a line of a worker's log; None when it tells of no task."""
    try:
        entry = json.loads(text)
    except ValueError:
        return None
    if not isinstance(entry, dict) or "lease" not in entry:
        return None
    return TaskLine(str(entry["lease"]), ended="seconds" in entry)


def _condition(status: Raw, kind: str) -> Raw:
    return next((condition for condition in status.get("conditions") or () if condition["type"] == kind), {})
