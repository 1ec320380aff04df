"""The part of a status that must not wait: it differs exactly when conditions, generation or size do."""

from itertools import product
from typing import Any

import pytest

from activity_operator.cluster.status_writer import is_urgent
from activity_operator.core.decide import decide
from activity_operator.core.decision import ScalingMemory
from activity_operator.core.observation import Observation
from activity_operator.core.status import pool_status, urgent_part
from tests.unit.activity_operator.core.builders import NOW, busy, observed, pending, pool, worker

OBSERVATIONS = (
    observed(),
    observed(busy("a")),
    observed(busy("a"), busy("b")),
    observed(worker("a"), busy("b")),
    observed(busy("a"), pending("n1")),
    observed(busy("a", reported_at=NOW - 500)),
    observed(busy("a"), refusal="no rule allows it"),
    observed(busy("a"), authentication_problem="no reviews"),
    observed(busy("a"), edit_conflict="two writers"),
    observed(busy("a"), report_path_problem="silent"),
)


def looked_at(observation: Observation, spec: Any) -> tuple[tuple[object, ...], dict[str, Any], int]:
    """Return the urgent part, the status and the size of a pool."""
    decision = decide(spec, observation, ScalingMemory())
    part = urgent_part(spec, observation, decision, None)
    return part, pool_status(spec, observation, decision, None, ()), decision.size.desired


@pytest.mark.parametrize(("one", "other"), list(product(range(len(OBSERVATIONS)), repeat=2)))
def test_part_differs_exactly_when_the_status_is_urgent(one: int, other: int) -> None:
    before = looked_at(OBSERVATIONS[one], pool())
    after = looked_at(OBSERVATIONS[other], pool())

    assert (before[0] != after[0]) == (is_urgent(before[1], after[1]) or before[2] != after[2])


def test_pause_changes_the_part() -> None:
    running, paused = (looked_at(observed(busy("a")), pool(paused=value))[0] for value in (False, True))

    assert running != paused
