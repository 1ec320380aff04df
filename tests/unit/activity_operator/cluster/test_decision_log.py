"""One log line for each written decision, with keys for machines."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from activity_operator.cluster.decision_log import decision_keys, log_decision
from activity_operator.cluster.pool_state import PoolState
from activity_operator.core.backlog import Backlog
from activity_operator.core.decision import Decision, Limit, ScalingMemory, Size
from activity_operator.core.observation import DeploymentFacts, Observation, PoolFacts
from activity_operator.core.situation import situation_of
from tests.unit.activity_operator.core.builders import pod, pool, worker

KEY = ("media", "resize")
DEPLOYMENTS = (DeploymentFacts("resize-a", "d1", "1", "a", 1, 2), DeploymentFacts("resize-b", "d2", "1", "b", 1, 1))
SEEN = Observation(now=10_000.0, pool=PoolFacts(*KEY, "u", 1), deployments=DEPLOYMENTS)
GROWTH = Decision(Size(7, Limit.DEMAND, "7 tasks wait"), ScalingMemory(), backlog=Backlog(7))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "activity_operator.cluster.decision_log")
    return caplog


@pytest.fixture
def state() -> PoolState:
    return PoolState("u", 0.0)


def shrink(desired: int, *victims: str) -> Decision:
    return Decision(Size(desired, Limit.DEMAND, "less work"), ScalingMemory(), victims=victims)


def test_keys_name_the_sizes_and_what_was_known() -> None:
    seen = replace(SEEN, pods=(pod("w1"),), workers=(worker("w1", slots=3, busy=2),))
    decision = replace(GROWTH, situation=situation_of(pool(), seen), memory=ScalingMemory(waiting_since=9_987.54))

    assert decision_keys(KEY, seen, decision) == {
        "namespace": "media",
        "pool": "resize",
        "from": 3,
        "to": 7,
        "limit": "demand",
        "reason": "7 tasks wait",
        "backlog": 7,
        "inflight": 2,
        "wait_seconds": 12.5,
    }


def test_unknown_numbers_have_no_key() -> None:
    keys = decision_keys(KEY, SEEN, replace(GROWTH, backlog=Backlog(None)))

    assert {"backlog", "inflight", "wait_seconds"}.isdisjoint(keys)


def test_written_size_is_logged_at_info(lines: pytest.LogCaptureFixture, state: PoolState) -> None:
    log_decision(KEY, state, SEEN, GROWTH, scaled=True, cordoned=False)

    (record,) = lines.records
    assert (record.levelname, record.getMessage()) == (
        "INFO",
        "media/resize: from 3 to 7 workers (demand): 7 tasks wait",
    )
    assert record.__dict__["keys"]["to"] == 7


def test_decision_that_writes_nothing_has_no_line(lines: pytest.LogCaptureFixture, state: PoolState) -> None:
    log_decision(KEY, state, SEEN, GROWTH, scaled=False, cordoned=False)

    assert not lines.records


def test_pool_that_shrinks_in_steps_has_one_line(lines: pytest.LogCaptureFixture, state: PoolState) -> None:
    log_decision(KEY, state, SEEN, shrink(1, "w1", "w2"), scaled=False, cordoned=True)
    for _ in range(2):
        log_decision(KEY, state, SEEN, shrink(1), scaled=True, cordoned=False)
    assert len(lines.records) == 1

    log_decision(KEY, state, SEEN, GROWTH, scaled=True, cordoned=False)
    assert len(lines.records) == 2


def test_further_victims_of_the_same_size_have_a_line(lines: pytest.LogCaptureFixture, state: PoolState) -> None:
    log_decision(KEY, state, SEEN, shrink(1, "w1"), scaled=False, cordoned=True)
    log_decision(KEY, state, SEEN, shrink(1, "w2"), scaled=False, cordoned=True)

    assert len(lines.records) == 2


def test_reason_can_neither_break_the_line_nor_fill_it(state: PoolState, lines: pytest.LogCaptureFixture) -> None:
    reason: Any = "two\nlines" + "x" * 1000
    log_decision(KEY, state, SEEN, replace(GROWTH, size=Size(7, Limit.DEMAND, reason)), scaled=True, cordoned=False)

    message = lines.records[0].getMessage()
    assert "\n" not in message
    assert len(message) < 400


def test_recommended_size_has_one_line_for_each_size(lines: pytest.LogCaptureFixture, state: PoolState) -> None:
    kept = Size(3, Limit.RECOMMEND, "scaling.mode is Recommend")
    recommended = replace(GROWTH, size=kept, recommended=GROWTH.size)
    for _ in range(2):
        log_decision(KEY, state, SEEN, recommended, scaled=False, cordoned=False)
    (record,) = lines.records
    assert record.getMessage() == "media/resize: has 3 workers, recommended are 7 (demand): 7 tasks wait"
    assert record.__dict__["keys"]["mode"] == "Recommend"

    smaller = replace(GROWTH.size, desired=5)
    log_decision(KEY, state, SEEN, replace(GROWTH, size=kept, recommended=smaller), scaled=False, cordoned=False)
    assert len(lines.records) == 2
