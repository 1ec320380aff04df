"""The operator asks the fake service for a pool's activity in every mode, and says what is wrong with it."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.backlog import preflight
from activity_operator.backlog.preflight import ActivityPreflight
from activity_operator.backlog.protocol import LeaseCounts, PollTarget
from activity_operator.backlog.sentinel import Sentinels
from activity_operator.backlog.stepfunctions import StepFunctions
from activity_operator.core.decide import decide
from activity_operator.core.decision import ScalingMemory, SentinelOrder
from activity_operator.core.observation import Observation, PoolFacts, SourceFacts
from activity_operator.core.status import pool_status
from activity_worker.testing import Fault, StepFunctionsFake

KEY = ("shop", "resize")
REGION = "us-east-1"
MISSING = f"arn:aws:states:{REGION}:123456789012:activity:missing"


class Operator:
    """A preflight beside a sentinel, over the operator's own client of the fake service."""

    def __init__(self, fake: StepFunctionsFake) -> None:
        self.fake = fake
        self.service = StepFunctions("operator-1")
        self.changed = asyncio.Event()
        self.tasks: list[str] = []
        self.sentinels = Sentinels(
            self.service,
            holdings=lambda _key: LeaseCounts(),
            on_task=lambda _key, _uid, _target, task: self.tasks.append(task.input),
            on_change=lambda _key: None,
            now=time.time,
        )
        self.preflight = ActivityPreflight(
            self.service,
            polled_at=lambda key: self.sentinels.facts(key).observed_at,
            on_change=lambda _key: self.changed.set(),
            now=time.time,
        )

    def order(self, arn: str, region: str = REGION) -> None:
        self.preflight.order(KEY, PollTarget(arn, region, self.fake.url))

    def reason(self) -> str:
        problem = self.preflight.problem(KEY)
        return "" if problem is None else problem.reason

    async def until(self, reason: str) -> None:
        """Wait until the pool's problem has this reason, "" for none."""
        async with asyncio.timeout(20):
            while self.reason() != reason:
                self.changed.clear()
                await self.changed.wait()

    def ready(self, arn: str, mode: str) -> tuple[str, str]:
        """Return status and reason of Ready for a pool in this mode that has no worker yet."""
        raw = {"activityArn": arn, "handlerImage": "h", "minWorkers": 1, "maxWorkers": 2, "activation": {"mode": mode}}
        spec = PoolSpec.model_validate(raw)
        source = SourceFacts(preflight=self.preflight.problem(KEY))
        observation = Observation(now=time.time(), pool=PoolFacts(*KEY, "u1", 1), source=source)
        decision = decide(spec, observation, ScalingMemory())
        conditions = pool_status(spec, observation, decision, {}, ())["conditions"]
        (found,) = [condition for condition in conditions if condition["type"] == "Ready"]
        return found["status"], found["reason"]


@pytest.fixture
async def fake(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StepFunctionsFake]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    service = StepFunctionsFake()
    service.settings.poll_hold_seconds = 0.5
    async with service:
        yield service


@pytest.fixture
async def operator(fake: StepFunctionsFake, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Operator]:
    """Return an operator that asks again after a tenth of a second."""
    monkeypatch.setattr(preflight, "RETRY_FIRST_SECONDS", 0.1)
    monkeypatch.setattr(preflight, "RETRY_CAP_SECONDS", 0.2)
    monkeypatch.setattr(preflight, "CALLS_PER_SECOND", 20.0)
    found = Operator(fake)
    yield found
    await found.preflight.stop()
    await found.sentinels.stop(5.0)
    await found.service.close()


async def test_missing_activity_is_said_in_every_mode_until_it_is_created(
    fake: StepFunctionsFake, operator: Operator
) -> None:
    operator.order(MISSING)
    await operator.until("ActivityNotFound")
    for mode in ("Sentinel", "CloudWatch", "None"):
        assert operator.ready(MISSING, mode) == ("False", "ActivityNotFound")

    fake.create_activity("missing")
    await operator.until("")
    for mode in ("Sentinel", "CloudWatch", "None"):
        assert operator.ready(MISSING, mode)[0] != "False"


async def test_wrong_region_is_named(fake: StepFunctionsFake, operator: Operator) -> None:
    operator.order(fake.create_activity("resize").replace(REGION, "eu-west-1"))
    await operator.until("WrongRegion")

    problem = operator.preflight.problem(KEY)
    assert problem is not None
    assert "is of region eu-west-1 and does not exist in us-east-1" in problem.message


async def test_denied_question_ends_with_the_right(fake: StepFunctionsFake, operator: Operator) -> None:
    fake.inject("DescribeActivity", Fault.DENY, None)
    arn = fake.create_activity("resize")
    operator.order(arn)
    await operator.until("AccessDenied")
    assert operator.ready(arn, "CloudWatch") == ("False", "AccessDenied")
    assert operator.ready(arn, "None")[0] != "False"

    fake.clear_faults()
    await operator.until("")


async def test_polls_go_on_while_the_question_is_denied(fake: StepFunctionsFake, operator: Operator) -> None:
    fake.inject("DescribeActivity", Fault.DENY, None)
    arn = fake.create_activity("resize")
    operator.order(arn)
    await operator.until("AccessDenied")
    operator.sentinels.order(KEY, SentinelOrder(2, 2), PollTarget(arn, REGION, fake.url))
    await operator.until("")

    assert operator.sentinels.facts(KEY).error is None
    assert operator.sentinels.facts(KEY).observed_at > 0
