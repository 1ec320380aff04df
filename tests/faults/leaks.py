"""Finds task inputs, task tokens and API server tokens in places where they must not be."""

import json
from collections.abc import Iterator, Mapping

from activity_operator.cluster.resources import EVENTS
from tests.faults.fault_cluster import TOKENS
from tests.faults.harness import PAYLOAD, FaultHarness


async def leaks(harness: FaultHarness) -> list[str]:
    """Return one sentence for each secret in the operators' logs, the pool's status or the namespace's Events."""
    places = {f"the log of {one.name}": one.log.read_text(errors="replace") for one in harness.replicas}
    places["the pool"] = json.dumps(await harness.pool() or {})
    places["an Event"] = json.dumps(await harness.api.items(EVENTS.path(harness.namespace)))
    secrets = {task.token: "the token of a task" for task in harness.tasks()}
    secrets |= {PAYLOAD: "a payload", **{token: f"the token of {user}" for user, token in TOKENS.items()}}
    return list(found(places, secrets))


def found(places: Mapping[str, str], secrets: Mapping[str, str]) -> Iterator[str]:
    """PURE: yield a sentence for each secret that a text contains.

    `places`: name -> text; `secrets`: name -> secret.
    """
    for place, text in places.items():
        yield from sorted({f"{what} stands in {place}" for secret, what in secrets.items() if secret in text})
