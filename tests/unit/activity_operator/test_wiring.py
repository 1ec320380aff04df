"""The reconciler's orders go to polls or counts, and their results are combined into one."""

import asyncio
import gc
from dataclasses import fields
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.backlog.cloudwatch import CloudWatchReader
from activity_operator.backlog.protocol import PollTarget
from activity_operator.backlog.stepfunctions import StepFunctions
from activity_operator.components import ClusterServices, PoolSources
from activity_operator.core.decision import CountPace, SentinelOrder
from activity_operator.core.observation import ActivityMetrics, BacklogCount, SourceFacts, SourceProblem
from activity_operator.metrics import Metrics
from activity_operator.settings import OperatorSettings
from activity_operator.wiring import build_components

KEY = ("team", "resize")
ARN = "arn:aws:states:us-east-1:123456789012:activity:resize"
COUNTS = ActivityMetrics((), 5.0)
DENIED = SourceProblem("AccessDenied", "allow it", 1.0)
NOT_FOUND = SourceProblem("ActivityNotFound", "create it", 1.0)


class FakeComponents:
    """Fakes of sentinels, counts and leases, which record their orders."""

    def __init__(
        self,
        polled: SourceFacts,
        counted: tuple[ActivityMetrics | None, SourceProblem | None],
        signals: tuple[tuple[BacklogCount, ...], SourceProblem | None] = ((), None),
        preflight: SourceProblem | None = None,
    ) -> None:
        self.polls: list[Any] = []
        self.counted: list[PollTarget | None] = []
        sentinels = SimpleNamespace(
            order=lambda key, order, target, uid: self.polls.append((order.polls, target)),
            facts=lambda key: polled,
            forget=lambda key: self.polls.append("forgotten"),
        )
        counts = SimpleNamespace(order=lambda key, target: self.counted.append(target), latest=lambda key: counted)
        self.checked: list[PollTarget | None] = []
        checks = SimpleNamespace(order=lambda key, target: self.checked.append(target), problem=lambda key: preflight)
        leases = SimpleNamespace(set_policy=lambda key, policy: None, check_all=lambda: None)
        self.ordered: list[SentinelOrder] = []
        watched = SimpleNamespace(
            order=lambda key, order, spec: self.ordered.append(order),
            latest=lambda key: signals,
            withdraw=lambda key: self.ordered.append(SentinelOrder()),
        )
        self.listed: list[tuple[PollTarget | None, CountPace]] = []
        self.list_count: tuple[BacklogCount | None, SourceProblem | None] = (None, None)
        lists = SimpleNamespace(
            order=lambda key, target, pace=CountPace.STEADY: self.listed.append((target, pace)),
            latest=lambda key: self.list_count,
            answered_at=lambda key: 0.0 if self.list_count[0] is None else self.list_count[0].observed_at,
        )
        parts: dict[str, Any] = {
            "sentinels": sentinels,
            "metrics": counts,
            "preflight": checks,
            "counted_sources": watched,
            "task_lists": lists,
            "leases": leases,
        }
        self.signals = PoolSources(**parts, cluster_name="kent")


def spec(**aws: str) -> PoolSpec:
    raw = {"activityArn": ARN, "handlerImage": "h", "maxWorkers": 1, "activation": {"mode": "CloudWatch"}, "aws": aws}
    return PoolSpec.model_validate(raw)


def test_counts_use_their_own_endpoint_and_the_pools_role() -> None:
    components = FakeComponents(SourceFacts(), (None, None))
    aws = {"endpointUrl": "http://sfn", "cloudWatchEndpointUrl": "http://cw", "roleArn": "arn:aws:iam::1:role/r"}
    components.signals.order(KEY, SentinelOrder(counts=True), spec(**aws), "uid")
    components.signals.order(KEY, SentinelOrder(counts=True), spec(endpointUrl="http://sfn"), "uid")

    first, second = components.counted
    assert first == PollTarget(ARN, "us-east-1", "http://cw", "arn:aws:iam::1:role/r", "kent/team")
    assert second == PollTarget(ARN, "us-east-1", "")
    assert [polls for polls, _ in components.polls] == [0, 0]


def test_counts_are_read_only_while_they_are_ordered() -> None:
    components = FakeComponents(SourceFacts(), (None, None))
    components.signals.order(KEY, SentinelOrder(2, 10), spec(), "uid")
    components.signals.withdraw(KEY, deleted=True)

    assert components.counted == [None, None]
    assert components.polls[-1] == "forgotten"


@pytest.mark.parametrize(
    ("polled", "counted", "combined"),
    [
        (SourceFacts(held=1), (None, None), SourceFacts(held=1)),
        (SourceFacts(held=1), (COUNTS, None), SourceFacts(held=1, metrics=COUNTS)),
        (SourceFacts(), (COUNTS, DENIED), SourceFacts(metrics=COUNTS, error=DENIED)),
        (SourceFacts(), (None, DENIED), SourceFacts(error=DENIED)),
        (SourceFacts(error=NOT_FOUND), (COUNTS, DENIED), SourceFacts(metrics=COUNTS, error=NOT_FOUND)),
    ],
    ids=["polls alone", "both", "old counts and an error", "an error alone", "two errors"],
)
def test_results_of_polls_and_counts_are_combined(
    polled: SourceFacts, counted: tuple[ActivityMetrics | None, SourceProblem | None], combined: SourceFacts
) -> None:
    assert FakeComponents(polled, counted).signals.facts(KEY) == combined


def test_source_without_polls_is_still_counted() -> None:
    components = FakeComponents(SourceFacts(), (COUNTS, None))
    components.signals.order(KEY, SentinelOrder(2, 10, counts=True), spec(), "uid")
    components.signals.stop_polls(KEY)

    assert components.checked == [None]

    assert components.polls[-1] == "forgotten"
    assert components.counted[-1] is not None
    assert len(components.ordered) == 1


@pytest.mark.parametrize("mode", ["Sentinel", "CloudWatch", "None"])
def test_activity_is_asked_for_in_every_mode_while_it_is_ordered(mode: str) -> None:
    components = FakeComponents(SourceFacts(), (None, None), preflight=NOT_FOUND)
    asking = spec().model_copy(update={"activation": spec().activation.model_copy(update={"mode": mode})})
    components.signals.order(KEY, SentinelOrder(preflight=True), asking, "uid")
    components.signals.order(KEY, SentinelOrder(), asking, "uid")
    components.signals.withdraw(KEY, deleted=True)

    assert components.checked == [PollTarget(ARN, "us-east-1"), None, None]
    assert components.signals.facts(KEY) == SourceFacts(preflight=NOT_FOUND)


def test_counted_source_is_not_polled() -> None:
    components = FakeComponents(SourceFacts(), (None, None), ((BacklogCount(3, True, 5.0),), DENIED))
    raw = {"source": {"redis": {"address": "r:1", "flow": "f", "queue": "q"}}, "handlerImage": "h", "maxWorkers": 1}
    order = SentinelOrder(counts=True)
    components.signals.order(KEY, order, PoolSpec.model_validate(raw), "uid")

    assert (components.ordered, components.polls, components.counted) == ([order], ["forgotten"], [None])
    assert components.signals.facts(KEY) == SourceFacts(counts=(BacklogCount(3, True, 5.0),), error=DENIED)


def listed(**aws: str) -> PoolSpec:
    swf = {"domain": "shop", "taskList": "invoices"}
    raw = {"source": {"swf": swf}, "handlerImage": "h", "maxWorkers": 1, "aws": {"region": "eu-west-1", **aws}}
    return PoolSpec.model_validate(raw)


def test_task_list_is_counted_at_the_ordered_pace_with_the_pools_role() -> None:
    components = FakeComponents(SourceFacts(), (None, None))
    role = "arn:aws:iam::123456789012:role/r"
    order = SentinelOrder(counts=True, preflight=True, pace=CountPace.FAST)
    components.signals.order(KEY, order, listed(roleArn=role, endpointUrl="http://swf"), "uid")
    components.signals.order(KEY, SentinelOrder(), listed(), "uid")

    target = PollTarget("", "eu-west-1", "http://swf", role, "kent/team", "shop", "invoices")
    assert components.listed == [(target, CountPace.FAST), (None, CountPace.STEADY)]
    assert components.checked == [target, None]
    assert components.polls[0] == (0, target)
    assert components.counted == [None, None]


def test_count_of_a_task_list_is_an_answer_of_the_service() -> None:
    components = FakeComponents(SourceFacts(), (None, None), preflight=DENIED)
    count = BacklogCount(3, True, 7.0, stale_seconds=30.0)
    components.list_count = (count, None)

    assert components.signals.facts(KEY) == SourceFacts(counts=(count,), observed_at=7.0, preflight=DENIED)


def test_error_of_a_task_list_is_the_sources_error() -> None:
    components = FakeComponents(SourceFacts(), (None, None))
    components.list_count = (None, DENIED)

    assert components.signals.facts(KEY) == SourceFacts(error=DENIED)


def test_deleted_pool_is_counted_no_more() -> None:
    components = FakeComponents(SourceFacts(), (None, None))
    components.signals.withdraw(KEY, deleted=True)

    assert components.listed == [(None, CountPace.STEADY)]


def test_calls_of_each_service_are_counted_under_its_name() -> None:
    metrics = Metrics("1.0")
    parts: dict[str, Any] = {part.name: MagicMock() for part in fields(ClusterServices)}
    services = ClusterServices(**{**parts, "settings": OperatorSettings(), "metrics": metrics})
    service, cloudwatch = StepFunctions("x"), CloudWatchReader()
    build_components(services, service, cloudwatch)
    service.observed("GetActivityTask", 200, "ok", 60.0)
    cloudwatch.observed("GetMetricData", 0, "unreachable", 20.0)

    text = metrics.render().decode()
    requests = "activitypool_backend_requests_total"
    assert f'{requests}{{backend="stepfunctions",code="200",operation="GetActivityTask"}} 1.0' in text
    assert f'{requests}{{backend="cloudwatch",code="0",operation="GetMetricData"}} 1.0' in text


async def test_term_that_ends_at_once_does_not_block_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first term ends before the reading of its leases has run a step; the next one must still get ready."""
    parts: dict[str, Any] = {part.name: MagicMock() for part in fields(ClusterServices)}
    services = ClusterServices(**{**parts, "settings": OperatorSettings(), "metrics": Metrics("1.0")})
    components = build_components(services, StepFunctions("x"), CloudWatchReader())
    begun = asyncio.Event()

    async def begin_term() -> None:
        begun.set()

    monkeypatch.setattr(components.leases, "begin_term", begin_term)
    components.store_filled()
    components.end_term()
    await asyncio.sleep(0)
    assert not begun.is_set()

    components.store_filled()
    async with asyncio.timeout(5):
        await begun.wait()
    assert components.ready


async def test_failure_to_take_over_leases_ends_the_process_with_its_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parts: dict[str, Any] = {part.name: MagicMock() for part in fields(ClusterServices)}
    failures: list[str] = []
    services = ClusterServices(
        **{**parts, "settings": OperatorSettings(), "metrics": Metrics("1.0"), "fail": failures.append}
    )
    components = build_components(services, StepFunctions("x"), CloudWatchReader())
    monkeypatch.setattr(components.leases, "begin_term", AsyncMock(side_effect=RuntimeError("a bug")))
    unretrieved: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unretrieved.append(context))

    components.store_filled()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=5)
    components.end_term()
    gc.collect()

    assert ["a bug" in failure for failure in failures] == [True]
    assert not components.ready
    assert "RuntimeError: a bug" in caplog.text
    assert unretrieved == []
