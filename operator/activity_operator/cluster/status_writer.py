"""Compares a pool's status with the API server's and writes it: changed numbers at most every ten seconds."""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from activity_operator.api.conditions import Condition, ConditionType, Reason, merge
from activity_operator.api.errors import SpecError
from activity_operator.api.status import parse_status
from activity_operator.cluster.kube import KubeClient, KubeError
from activity_operator.cluster.resources import POOLS, Raw

#: Minimum seconds between two writes that change only counts and lists of events; conditions are written at once.
COUNTS_SECONDS = 10.0


class NameTakenError(Exception):
    """The Deployment of that name has another owner, or belongs to a pool that is being deleted."""


def invalid_spec_status(pool: Raw, error: SpecError, now: float) -> dict[str, Any]:
    """Return the status of a pool with an invalid spec: the former status, with conditions that name the fix.

    `now` is Unix seconds.
    """
    return _unready(pool, error.reason, str(error), now, stalled=True)


def failing_status(pool: Raw, error: Exception, now: float) -> dict[str, Any]:
    """Return the status of a pool whose reconciliation fails: the former status, with conditions that say why.

    `now` is Unix seconds.
    """
    expected = isinstance(error, KubeError | NameTakenError)
    words = f"the operator failed ({type(error).__name__}): its log says where, and this is a bug to report"
    return _unready(pool, Reason.RECONCILE_FAILED, str(error) if expected else words, now, stalled=False)


def _unready(pool: Raw, reason: str, message: str, now: float, *, stalled: bool) -> dict[str, Any]:
    before = parse_status(pool.get("status"))
    generation = int(pool["metadata"].get("generation", 1))
    fresh = [Condition(ConditionType.READY, "False", reason, message, generation)]
    if stalled:
        fresh.append(Condition(ConditionType.STALLED, "True", reason, message, generation))
    conditions = merge(before.conditions, fresh, datetime.fromtimestamp(int(now), UTC))
    changed = before.model_copy(update={"observed_generation": generation, "conditions": conditions})
    return changed.as_dict()


def is_urgent(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether the generation, or a condition's status or reason differs; a message alone is not urgent."""
    return _gist(live) != _gist(wanted)


def _gist(status: Mapping[str, Any]) -> tuple[Any, ...]:
    conditions = status.get("conditions") or ()
    states = sorted((c.get("type"), c.get("status"), c.get("reason"), c.get("observedGeneration")) for c in conditions)
    return (status.get("observedGeneration"), tuple(states))


def _plain(value: Any) -> Any:
    """Return the value without empty parts, which the API server may drop, so that equal statuses compare equal."""
    if isinstance(value, Mapping):
        cleaned = {name: _plain(item) for name, item in value.items() if item is not None}
        return {name: item for name, item in cleaned.items() if item not in ("", [], {})}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def digest(wanted: Mapping[str, Any]) -> str:
    """Return a hash to recognise a status: 64 characters instead of 10 KB per pool."""
    return hashlib.sha256(json.dumps(wanted, sort_keys=True, default=str).encode()).hexdigest()


class StatusWriter:
    """Writes statuses; `wait` returns how long a write has to wait."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube

    def wait(self, pool: Raw, wanted: Mapping[str, Any], since_last: float) -> float | None:
        """Return the seconds until `wanted` should be written, None if the API server already has it.

        `since_last` is how many seconds ago this pool's status was last written.
        """
        live = pool.get("status") or {}
        if _plain(live) == _plain(wanted):
            return None
        if is_urgent(live, wanted):
            return 0.0
        return max(COUNTS_SECONDS - since_last, 0.0)

    async def write(self, pool: Raw, wanted: Mapping[str, Any]) -> Raw:
        """Apply the status and return the pool as it is now.

        Raises `ApiError` 409 if the pool has changed, or its name belongs to another pool: a late status of a former
        leader must not replace the next leader's.
        """
        meta = pool["metadata"]
        known = {name: meta[name] for name in ("name", "uid", "resourceVersion")}
        return await self._kube.apply_status(
            POOLS, meta["namespace"], meta["name"], {"metadata": known, "status": dict(wanted)}
        )
