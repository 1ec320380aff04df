"""One log line for each decision that was written: from which size to which, why, and what was known."""

import logging
from dataclasses import replace
from typing import Any

from activity_operator.api.status import MAX_TEXT_LENGTH
from activity_operator.api.text import printable
from activity_operator.cluster.pool_state import PoolState
from activity_operator.cluster.resources import Key
from activity_operator.core.decision import Decision, Limit
from activity_operator.core.observation import Observation

log = logging.getLogger(__name__)


def log_decision(
    key: Key, state: PoolState, observation: Observation, decision: Decision, *, scaled: bool, cordoned: bool
) -> None:
    """Log a decision once it has written replicas (`scaled`) or cordoned its victims.

    A pool shrinks in many writes: its victims are cordoned first, and each one goes when it has drained. These later
    writes have the size of the line before and no line of their own.
    """
    if decision.recommended is not None and decision.size.limit is Limit.RECOMMEND:
        _log_recommendation(key, state, observation, replace(decision, size=decision.recommended))
        return
    desired = decision.size.desired
    if not cordoned and not (scaled and desired != state.logged_size):
        return
    state.logged_size = desired
    keys = decision_keys(key, observation, decision)
    _log("%s: from %d to %d workers (%s): %s", keys)


def _log_recommendation(key: Key, state: PoolState, observation: Observation, decision: Decision) -> None:
    """Log a size that is not written, once for each size."""
    if decision.size.desired != state.logged_size:
        state.logged_size = decision.size.desired
        keys = decision_keys(key, observation, decision) | {"mode": "Recommend"}
        _log("%s: has %d workers, recommended are %d (%s): %s", keys)


def _log(text: str, keys: dict[str, Any]) -> None:
    name = f"{keys['namespace']}/{keys['pool']}"
    log.info(text, name, keys["from"], keys["to"], keys["limit"], keys["reason"], extra={"keys": keys})


def decision_keys(key: Key, observation: Observation, decision: Decision) -> dict[str, Any]:
    """Return the keys of a decision's log line; unknown numbers are left out.

    `from` are the workers that the Deployments asked for before, `inflight` the tasks that run in workers, and
    `wait_seconds` the time for which tasks have been waiting for a worker.
    """
    since = decision.memory.waiting_since
    keys = {
        "namespace": key[0],
        "pool": key[1],
        "from": sum(deployment.replicas for deployment in observation.deployments),
        "to": decision.size.desired,
        "limit": str(decision.size.limit),
        "reason": printable(decision.size.reason)[:MAX_TEXT_LENGTH],
        "backlog": decision.backlog.tasks,
        "inflight": None if decision.situation is None else decision.situation.fleet.running_tasks,
        "wait_seconds": None if since is None else round(max(observation.now - since, 0.0), 1),
    }
    return {name: value for name, value in keys.items() if value is not None}
