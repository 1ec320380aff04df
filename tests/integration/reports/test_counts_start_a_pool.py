"""A pool that reads CloudWatch counts, with public CloudWatch emulators.

The emulators publish no metrics themselves: the test puts the values of Step Functions there with boto3.
"""

import asyncio
import contextlib
import dataclasses
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NoReturn

import boto3
import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.backlog import metric_data
from activity_operator.backlog.cloudwatch import CloudWatchReader
from activity_operator.backlog.metric_rounds import MetricPoller
from activity_operator.backlog.preflight import ActivityPreflight
from activity_operator.backlog.protocol import PollTarget, SourceProblemError
from activity_operator.backlog.swf import Swf
from activity_operator.backlog.task_list_rounds import TaskListPoller
from activity_operator.cluster.secret_values import SecretValues
from activity_operator.components import PoolSources
from activity_operator.core.decide import decide
from activity_operator.core.decision import Decision, ScalingMemory
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import DeploymentFacts, MetricPeriod, Observation, PodFacts, PoolFacts
from activity_operator.core.tenancy import TenancyPolicy
from activity_operator.counted_sources import CountedSources
from activity_worker.contract import WorkerState
from activity_worker.testing import StepFunctionsFake
from tests.conformance.emulators import EMULATORS, NoPythonError, running
from tests.eventually import eventually
from tests.integration.reports.harness import KEY, Operator, TaskReportHarness, succeeded
from tests.unit.activity_operator.leases.shared_state import Records

REGION = "us-east-1"


@pytest.fixture(scope="module")
def emulators() -> Iterator[Callable[[str], str]]:
    """Start each emulator with CloudWatch at its first use; all are killed at the end."""
    with contextlib.ExitStack() as stack:
        urls: dict[str, str] = {}

        def url_of(name: str) -> str:
            if name not in urls:
                recipe = EMULATORS[name]
                counting = dataclasses.replace(recipe, settings={**recipe.settings, "SERVICES": "cloudwatch"})
                urls[name] = stack.enter_context(running(counting))
            return urls[name]

        yield url_of


@pytest.fixture(params=list(EMULATORS))
def cloudwatch_url(
    request: pytest.FixtureRequest, emulators: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> str:
    """Return each emulator's URL in turn."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    try:
        return emulators(str(request.param))
    except NoPythonError as reason:
        pytest.skip(f"{request.param} {reason}")


async def count(url: str, arn: str, name: str, values: dict[float, int]) -> None:
    """Put the number of events of an activity at these times."""
    client = boto3.client("cloudwatch", region_name=REGION, endpoint_url=url)
    data = [
        {"MetricName": name, "Dimensions": [{"Name": "ActivityArn", "Value": arn}], "Timestamp": at, "Value": value}
        for at, value in values.items()
    ]
    await asyncio.to_thread(client.put_metric_data, Namespace="AWS/States", MetricData=data)


async def test_metrics_from_boto3_are_read_by_minute_and_by_hour(cloudwatch_url: str) -> None:
    busy = f"arn:aws:states:{REGION}:123456789012:activity:busy{time.monotonic_ns()}"
    quiet = f"arn:aws:states:{REGION}:123456789012:activity:quiet"
    now = time.time()
    minutes, hours = metric_data.recent(now), metric_data.past(now)
    at = minutes.start + 600
    await count(cloudwatch_url, busy, "ActivitiesScheduled", {at + 1: 2, at + 31: 3, at + 120: 1, hours.end - 1800: 7})
    await count(cloudwatch_url, busy, "ActivitiesStarted", {at + 125: 4})
    service = CloudWatchReader()
    place = PollTarget("", REGION, cloudwatch_url)
    try:
        by_minute = await service.read(place, [busy, quiet], minutes)
        by_hour = await service.read(place, [busy, quiet], hours)
    finally:
        await service.close()

    assert by_minute == {busy: (MetricPeriod(at, 60, 5, 0), MetricPeriod(at + 120, 60, 1, 4)), quiet: ()}
    assert by_hour == {busy: (MetricPeriod(hours.end - 3600, 3600, 7, 0),), quiet: ()}


async def test_refused_connection_names_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    service = CloudWatchReader()
    with pytest.raises(
        SourceProblemError, match=r"no answer from CloudWatch in us-east-1 at http://127.0.0.1:9: check"
    ):
        await service.read(PollTarget("", REGION, "http://127.0.0.1:9"), ["a"], metric_data.recent(time.time()))
    await service.close()


async def no_secret(namespace: str, name: str) -> NoReturn:
    """No pool here names a Secret."""
    raise AssertionError(f"Secret {namespace}/{name} was read")


class CountingOperator(Operator):
    """The operator's components with the deciding core; its cluster is one Deployment of at most one pod."""

    def __init__(self, fake: StepFunctionsFake, arn: str, records: Records, cloudwatch_url: str) -> None:
        super().__init__(fake, arn, records, term=1)
        scale_down = {"stabilizationWindowSeconds": 0, "zeroAfterSeconds": 2}
        aws = {"region": REGION, "endpointUrl": fake.url, "cloudWatchEndpointUrl": cloudwatch_url}
        self.spec = PoolSpec.model_validate(
            {
                "activityArn": arn,
                "handlerImage": "handler:1",
                "maxWorkers": 1,
                "slotsPerWorker": 2,
                "activation": {"mode": "CloudWatch"},
                "aws": aws,
                "scaling": {"scaleDown": scale_down},
            }
        )
        self.counter = CloudWatchReader()
        self.counts = MetricPoller(self.counter, on_change=lambda _key: self.look(), now=time.time)
        secrets = SecretValues(no_secret, on_change=lambda _key: None)
        counted = CountedSources(secrets, TenancyPolicy, on_change=lambda _key: None, called=lambda *_: None)
        preflight = ActivityPreflight(
            self.service,
            polled_at=lambda key: self.sentinels.facts(key).observed_at,
            on_change=lambda _key: self.look(),
            now=time.time,
        )
        lists = TaskListPoller(Swf(), on_change=lambda _key: None, now=time.time)
        self.signals = PoolSources(self.sentinels, self.counts, preflight, counted, lists, self.leases, "test")
        self.memory = ScalingMemory()
        self.pod: PodFacts | None = None
        self.decided: list[Decision] = []
        self.timer: asyncio.TimerHandle | None = None

    @property
    def desired(self) -> int:
        return self.decided[-1].size.desired

    def pod_starts(self) -> None:
        now = time.time()
        self.pod = PodFacts(
            "resize-abc",
            "uid-1",
            revision_of(self.spec),
            "Running",
            now,
            ready=True,
            ready_since=now,
            running_since=now,
        )

    def observe(self) -> Observation:
        pods = () if self.pod is None else (self.pod,)
        revision = revision_of(self.spec)
        deployment = DeploymentFacts(f"resize-{revision}", "d", "1", revision, 1, len(pods))
        said = self.registry.workers(*KEY)
        return Observation(
            time.time(), PoolFacts(*KEY, "pool-1", 1), (deployment,), pods, said, source=self.signals.facts(KEY)
        )

    def look(self) -> None:
        decision = decide(self.spec, self.observe(), self.memory)
        self.memory = decision.memory
        self.decided.append(decision)
        self.registry.set_directives(*KEY, decision.directives)
        self.signals.order(KEY, decision.sentinel, self.spec, "pool-1")
        if self.timer is not None:
            self.timer.cancel()
        if decision.look_again_in is not None:
            self.timer = asyncio.get_running_loop().call_later(decision.look_again_in, self.look)

    async def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        await self.counts.stop()
        await self.counter.close()
        await super().stop()


@contextlib.asynccontextmanager
async def counting(harness: TaskReportHarness, url: str) -> AsyncIterator[CountingOperator]:
    operator = CountingOperator(harness.fake, harness.arn, harness.records, url)
    context: ssl.SSLContext = harness.context
    await operator.start(harness.port, context)
    try:
        yield operator
    finally:
        await operator.stop()


async def test_counts_start_a_pool_at_zero_and_it_goes_back_after_the_work(
    harness: TaskReportHarness, cloudwatch_url: str
) -> None:
    harness.fake.schedule(harness.arn, '{"n": 1}', count=3, heartbeat_seconds=3.0)
    await count(cloudwatch_url, harness.arn, "ActivitiesScheduled", {time.time() - 200: 3})
    async with counting(harness, cloudwatch_url) as operator:
        operator.look()
        assert operator.desired == 0
        await eventually("the operator wants one worker", lambda: operator.desired == 1)
        assert operator.decided[-1].size.reason.endswith("at least 3 waiting would need 2 workers; maxWorkers is 1")
        operator.pod_starts()
        async with harness.worker("doubles"):
            await eventually("three executions have succeeded", lambda: succeeded(harness) == 3)
            # The emulators publish no metric of started tasks; the worker's own empty polls show that none waits.
            await eventually("the operator wants no worker", lambda: operator.desired == 0)
            await eventually(
                "the worker reports that it is drained",
                lambda: operator.registry.workers(*KEY)[0].state is WorkerState.DRAINED,
            )

    assert {task.conclusions for task in harness.fake.tasks} == {1}
    assert {task.worker_name.startswith("activitypool-operator/") for task in harness.fake.tasks} == {False}
    assert harness.records.calls["create"] == 0, "a payload passed the operator"
