"""An operator that may not poll, beside workers that may: the status says it once, and nothing is written at rest."""

import asyncio
from typing import Any

import pytest

from activity_operator.backlog.protocol import SourceProblemError
from activity_operator.core.status import pool_status
from tests.unit.activity_operator.backlog.fakes import KEY, TARGET, PolledSentinels, Polls
from tests.unit.activity_operator.core.pool_harness import PoolHarness, pool_spec
from tests.unit.activity_operator.virtual_time import settle

DENIED = SourceProblemError("AccessDenied", "the operator's own identity may not poll: allow states:GetActivityTask")
UNREACHABLE = SourceProblemError("BackendUnreachable", "no answer from us-east-1")
MISSING = SourceProblemError("ActivityNotFound", "the activity does not exist: create it")
BUSY_SECONDS = IDLE_SECONDS = 30


class RefusedPool:
    """A pool with its true sentinel, in virtual time; `conditions` are Ready's changes: status, reason and message."""

    def __init__(self, problem: SourceProblemError | None, **changes: Any) -> None:
        self.pool = PoolHarness(pool_spec(**changes), proven=True)
        self.polled = PolledSentinels(Polls())
        self.polled.polls.always = problem
        self.pool.term.counted = lambda: self.polled.sentinels.facts(KEY)
        self.conditions: list[tuple[str, str, str]] = []
        self.sizes: set[int] = set()
        self._status: dict[str, Any] = {}

    async def run(self, seconds: int) -> None:
        for _ in range(seconds):
            decision = self.pool.run(1.0)
            self.polled.sentinels.order(KEY, decision.sentinel, TARGET)
            self._status = pool_status(self.pool.spec, self.pool.term.observe(), decision, self._status, ())
            ready = next(one for one in self._status["conditions"] if one["type"] == "Ready")
            state = ready["status"], ready["reason"], ready["message"]
            if not self.conditions or self.conditions[-1] != state:
                self.conditions.append(state)
            self.sizes.add(decision.size.desired)
            await asyncio.sleep(1.0)
            await settle()

    async def phases(self, number: int) -> None:
        """Let all workers be busy and then idle; `number` is how often."""
        for _ in range(number):
            self.pool.occupy(*self.pool.pods)
            await self.run(BUSY_SECONDS)
            self.pool.free()
            await self.run(IDLE_SECONDS)

    def forget(self) -> None:
        """Count the changes of Ready and the sizes from now on."""
        self.conditions.clear()
        self.sizes.clear()

    @property
    def warnings(self) -> list[str]:
        return [event.message for event in self.pool.term.events if event.kind == "Warning"]


@pytest.mark.parametrize("problem", [DENIED, UNREACHABLE], ids=["denied", "unreachable"])
async def test_pool_that_workers_serve_says_once_that_the_operator_may_not_poll(problem: SourceProblemError) -> None:
    refused = RefusedPool(problem, minWorkers=1, maxWorkers=4)
    await refused.run(60)
    await refused.phases(2)
    refused.forget()
    await refused.phases(5)

    assert 4 in refused.sizes, "the operator does not poll for a pool at maxWorkers"
    ((status, reason, message),) = refused.conditions
    assert (status, reason) == ("True", "PoolReady")
    assert "the workers poll" in message
    assert problem.message in message
    assert "spec.activation.mode to None" in message
    assert [problem.message in warning for warning in refused.warnings] == [True]


async def test_pool_that_must_start_from_zero_stays_not_ready() -> None:
    refused = RefusedPool(DENIED, minWorkers=0, scaling={"scaleDown": {"zeroAfterSeconds": 3600}})
    refused.polled.polls.always = None
    refused.polled.polls.put("t1")
    refused.pool.truth.arrive(1, 30.0)
    await refused.run(10)
    refused.polled.polls.always = DENIED
    await refused.run(60)
    await refused.phases(2)
    refused.forget()
    await refused.phases(4)

    assert refused.conditions == [("False", "AccessDenied", DENIED.message)]


async def test_refused_operator_asks_again_each_minute_while_workers_are_idle() -> None:
    refused = RefusedPool(DENIED, minWorkers=1)
    await refused.run(60)
    await refused.phases(2)
    await refused.run(120)
    refused.forget()
    before = len(refused.polled.polls.opened)
    await refused.run(240)

    assert 3 <= len(refused.polled.polls.opened) - before <= 5
    refused.polled.polls.always = None
    await refused.run(130)
    assert refused.conditions[-1] == ("True", "PoolReady", "the pool can do its work")
    assert refused.polled.sentinels.facts(KEY).open_polls == 0


@pytest.mark.parametrize("changes", [{"paused": True}, {"replicas": 1}, {"activation": {"mode": "None"}}])
async def test_refusal_is_forgotten_once_the_operator_need_not_poll(changes: dict[str, Any]) -> None:
    refused = RefusedPool(DENIED, minWorkers=1)
    await refused.run(60)
    await refused.phases(1)
    assert refused.polled.sentinels.facts(KEY).error is not None
    refused.pool.edit(**changes)
    await refused.run(2)

    assert refused.polled.sentinels.facts(KEY).error is None


async def test_activity_that_does_not_exist_makes_the_pool_not_ready() -> None:
    refused = RefusedPool(MISSING, minWorkers=1)
    await refused.run(60)
    await refused.phases(1)
    refused.pool.occupy(*refused.pool.pods)
    await refused.run(5)

    assert refused.conditions[-1] == ("False", "ActivityNotFound", MISSING.message)
