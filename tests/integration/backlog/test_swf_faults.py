"""Faults of Amazon SWF as the operator sees them: over HTTP, with its own client, poller and decision."""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.backlog.protocol import PollTarget, SourceProblemError
from activity_operator.backlog.swf import Swf
from activity_operator.backlog.task_list_rounds import CALL_SECONDS, CountQuota, TaskListPoller
from activity_operator.core.decide import decide
from activity_operator.core.decision import Decision, ScalingMemory
from activity_operator.core.observation import BacklogCount, SourceFacts
from activity_operator.core.status import pool_status
from activity_worker.testing import SwfFake
from activity_worker.testing.fake_faults import Fault
from activity_worker.wire.session import shared_session
from tests.eventually import eventually
from tests.unit.activity_operator.core.builders import busy, observed, pod

KEY = ("team", "invoices")
DOMAIN, LIST = "shop", "invoices"
COUNT = "CountPendingActivityTasks"
#: The longest time that a short operation takes on a busy machine.
PATIENCE_SECONDS = 60.0
QUICK = CountQuota(counts_per_second=50.0, fastest_seconds=0.1)


class Listed:
    """A pool on a task list of a fake; `decision` is what the operator would do with three busy workers now."""

    def __init__(self, fake: SwfFake, quota: CountQuota = QUICK) -> None:
        self.fake = fake
        self.service = Swf()
        self.poller = TaskListPoller(self.service, on_change=lambda _: None, now=time.time, quota=quota)
        self.target = PollTarget("", "us-east-1", fake.url, domain=DOMAIN, task_list=LIST)
        source = {"swf": {"domain": DOMAIN, "taskList": LIST}}
        raw = {"source": source, "aws": {"region": "us-east-1"}, "handlerImage": "h:1", "maxWorkers": 10}
        self.spec = PoolSpec.model_validate(raw)

    async def begin(self, domain: str = DOMAIN) -> None:
        self.poller.order(KEY, replace(self.target, domain=domain))

    async def counted(self, tasks: int) -> None:
        await self.eventually(f"{tasks} tasks are counted", lambda: self.tasks == tasks)

    async def says(self, reason: str) -> str:
        """Wait until the pool has this problem; return its message."""
        await self.eventually(f"the pool says {reason}", lambda: self.reason == reason)
        problem = self.poller.latest(KEY)[1]
        assert problem is not None
        return problem.message

    async def eventually(self, what: str, holds: Callable[[], bool]) -> None:
        await eventually(what, holds, seconds=PATIENCE_SECONDS, every_seconds=0.02)

    @property
    def count(self) -> BacklogCount | None:
        return self.poller.latest(KEY)[0]

    @property
    def tasks(self) -> int | None:
        return None if self.count is None else self.count.tasks

    @property
    def reason(self) -> str:
        problem = self.poller.latest(KEY)[1]
        return "" if problem is None else problem.reason

    def decision(self, after_seconds: float = 0.0) -> Decision:
        """Decide with three busy workers; `after_seconds` lets that time pass without another count."""
        now = time.time() + after_seconds
        count, error = self.poller.latest(KEY)
        facts = SourceFacts(counts=() if count is None else (count,), error=error)
        names = ("w1", "w2", "w3")
        pods = [pod(name, created=now - 90, ready_since=now - 80, running_since=now - 85) for name in names]
        # Their tasks are older than every count.
        workers = [busy(name, reported_at=now, running_seconds=600.0) for name in names]
        return decide(self.spec, observed(*pods, *workers, now=now, source=facts), ScalingMemory())

    def conditions(self, decision: Decision) -> dict[str, tuple[str, str]]:
        """Return status and reason of each condition."""
        assert decision.situation is not None
        status = pool_status(self.spec, decision.situation.observation, decision, None, ())
        return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture
async def listed() -> AsyncIterator[Listed]:
    async with SwfFake(domains=[DOMAIN]) as fake:
        listed = Listed(fake)
        yield listed
        fake.clear_faults()
        await listed.poller.stop()
        await listed.service.close()


async def test_tasks_are_counted_and_none_is_taken(listed: Listed) -> None:
    listed.fake.schedule(DOMAIN, LIST, count=4)
    await listed.begin()
    await listed.counted(4)

    assert listed.decision().size.desired == 7
    assert "call:PollForActivityTask" not in listed.fake.counts
    assert listed.fake.queued(DOMAIN, LIST) == 4


async def test_more_tasks_than_the_service_counts_are_a_lower_bound(listed: Listed) -> None:
    listed.fake.settings.count_limit = 5
    listed.fake.schedule(DOMAIN, LIST, count=9)
    await listed.begin()
    await listed.counted(5)

    decision = listed.decision()

    assert (decision.backlog.tasks, decision.backlog.exact) == (5, False)
    assert "at least 5 waiting" in decision.size.reason


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        (Fault.THROTTLE, "Throttled", "ask for a higher quota, or lower swfCountsPerSecond"),
        (Fault.DENY, "AccessDenied", "allow swf:CountPendingActivityTasks on the domain shop to the operator's own"),
        (Fault.SERVER_ERROR, "BackendUnreachable", "InternalFailure"),
        (Fault.DROP_REPLY, "BackendUnreachable", "check spec.aws.endpointUrl"),
        (Fault.HANG, "BackendUnreachable", f"within {CALL_SECONDS:.0f} s"),
    ],
    ids=lambda value: str(value) if isinstance(value, Fault) else None,
)
async def test_capacity_is_held_and_said_and_comes_back(listed: Listed, fault: Fault, reason: str, words: str) -> None:
    await listed.begin()
    await listed.counted(0)
    listed.fake.schedule(DOMAIN, LIST, count=2)
    await listed.counted(2)
    listed.fake.inject(COUNT, fault, None)
    message = await listed.says(reason)

    assert words in message
    assert listed.tasks == 2
    assert listed.decision().size.desired == 5
    late = listed.decision(after_seconds=120)
    assert late.size.desired >= 3
    assert listed.conditions(late)["Ready"] == ("False", reason)
    assert listed.conditions(late)["SignalsStale"] == ("True", "BacklogUnknown")

    listed.fake.clear_faults()
    listed.fake.schedule(DOMAIN, LIST, count=1)
    await listed.counted(3)
    await listed.eventually("the fault is over", lambda: listed.reason == "")
    assert listed.conditions(listed.decision())["Ready"][0] != "False"


async def test_single_lost_reply_is_one_count_less(listed: Listed) -> None:
    await listed.begin()
    await listed.counted(0)
    listed.fake.inject(COUNT, Fault.DROP_REPLY, 1)
    listed.fake.schedule(DOMAIN, LIST, count=3)
    await listed.counted(3)

    assert listed.reason == ""


async def test_counts_go_on_after_steps_of_the_services_clock(listed: Listed) -> None:
    await listed.begin()
    for tasks, offset in enumerate((3600.0, -3600.0), start=1):
        listed.fake.settings.clock_offset_seconds = offset
        listed.fake.schedule(DOMAIN, LIST)
        await listed.counted(tasks)

    assert listed.reason == ""
    assert listed.fake.faults.seen[f"{COUNT}:wrong-clock"] >= 2


async def test_counts_go_on_with_a_renewed_key(listed: Listed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service refuses the old key for ever, so the operator must read the new one from the profile."""
    credentials = tmp_path / "credentials"
    written = "[default]\naws_access_key_id = {}\naws_secret_access_key = word\n"
    credentials.write_text(written.format("old"))
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    # The operator's session reads the place of the file once.
    shared_session.cache_clear()
    await listed.begin()
    await listed.counted(0)
    listed.fake.revoke_key("old")
    await listed.says("AccessDenied")
    credentials.write_text(written.format("new"))
    listed.fake.schedule(DOMAIN, LIST, count=2)

    # A refused key is read again at most every 30 s.
    await listed.counted(2)
    await listed.eventually("the fault is over", lambda: listed.reason == "")
    shared_session.cache_clear()


async def test_missing_domain_is_named_and_found_once_it_exists(listed: Listed) -> None:
    await listed.begin("books")
    message = await listed.says("DomainNotFound")
    listed.fake.register_domain("books")

    assert "the domain books does not exist in us-east-1 at http://" in message
    await listed.counted(0)
    await listed.eventually("the fault is over", lambda: listed.reason == "")


async def test_quota_of_the_service_is_enough_for_200_lists() -> None:
    async with SwfFake(domains=[DOMAIN]) as fake:
        fake.faults.throttle(COUNT, per_second=6.0, burst=200.0)
        listed = Listed(fake, CountQuota())
        for number in range(200):
            listed.poller.order(("team", f"list-{number}"), replace(listed.target, task_list=f"list-{number}"))
        # The first 25 lists are counted from the bucket, and the others at the rate.
        await eventually("50 lists are counted", lambda: fake.counts.get(f"call:{COUNT}", 0) >= 50, seconds=60.0)
        await listed.poller.stop()
        await listed.service.close()

        assert not fake.faults.seen


async def test_preflight_asks_swf_for_the_domain(listed: Listed) -> None:
    await listed.service.describe(listed.target)
    with pytest.raises(SourceProblemError) as missing:
        await listed.service.describe(replace(listed.target, domain="books"))
    listed.fake.inject("DescribeDomain", Fault.DENY, 1)
    with pytest.raises(SourceProblemError) as denied:
        await listed.service.describe(listed.target)

    assert (missing.value.reason, denied.value.reason) == ("DomainNotFound", "AccessDenied")
    assert "allow swf:DescribeDomain on the domain shop" in denied.value.message
