"""Clients are shared by the pools of a place, closed when they are idle, and never closed during a call."""

import asyncio
from itertools import pairwise

import pytest

from activity_operator.backlog import cloudwatch, stepfunctions
from activity_operator.backlog.clients import Clients, Closable
from activity_operator.backlog.protocol import PollTarget, SourceProblemError
from activity_worker.wire.errors import WireError
from tests.unit.activity_operator.virtual_time import elapsed, settle

ARN = "arn:aws:states:us-east-1:123456789012:activity:resize"


class Client:
    """Records when it was closed."""

    def __init__(self, region: str) -> None:
        self.region = region
        self.closed_at: float | None = None

    async def close(self) -> None:
        self.closed_at = elapsed()


class RecordedClients:
    """Clients of which three may be idle, for 300 s; `opened` has every client that was ever opened."""

    def __init__(self) -> None:
        self.opened: list[Client] = []
        self.fails: list[Exception] = []
        self.clients = Clients(self._open, idle_seconds=300.0, most_idle=3)

    def _open(self, target: PollTarget) -> Client:
        if self.fails:
            raise self.fails.pop()
        self.opened.append(Client(target.region))
        return self.opened[-1]

    async def call(self, region: str, seconds: float = 1.0) -> None:
        async with self.clients.open(PollTarget(ARN, region)) as client:
            assert client.region == region
            await asyncio.sleep(seconds)

    @property
    def open_regions(self) -> list[str]:
        return [client.region for client in self.opened if client.closed_at is None]


@pytest.fixture
def recorded() -> RecordedClients:
    return RecordedClients()


async def test_calls_to_one_place_share_a_client(recorded: RecordedClients) -> None:
    await asyncio.gather(*(recorded.call("us-east-1") for _ in range(20)))
    await recorded.call("us-east-1")

    assert len(recorded.opened) == 1
    await recorded.clients.close()


async def test_client_without_a_call_is_closed_after_five_minutes(recorded: RecordedClients) -> None:
    await recorded.call("us-east-1")
    await asyncio.sleep(299.0)
    assert recorded.open_regions == ["us-east-1"]
    await recorded.call("us-east-1")
    await asyncio.sleep(299.0)
    assert recorded.open_regions == ["us-east-1"]

    await asyncio.sleep(2.0)
    assert recorded.open_regions == []
    await recorded.call("us-east-1")
    assert recorded.open_regions == ["us-east-1"]
    await recorded.clients.close()


async def test_client_with_a_call_is_never_closed(recorded: RecordedClients) -> None:
    poll = asyncio.create_task(recorded.call("us-east-1", 3600.0))
    await recorded.call("us-east-1")
    for number in range(10):
        await recorded.call(f"eu-west-{number}")
    await asyncio.sleep(1800.0)
    assert recorded.open_regions == ["us-east-1"]

    await poll
    await asyncio.sleep(301.0)
    assert recorded.open_regions == []


async def test_many_edits_of_a_region_leave_few_clients(recorded: RecordedClients) -> None:
    for number in range(200):
        await recorded.call(f"us-east-{number}", 0.1)
    await settle()

    assert recorded.open_regions == ["us-east-197", "us-east-198", "us-east-199"]
    await recorded.clients.close()


async def test_least_recently_used_client_is_closed_first(recorded: RecordedClients) -> None:
    for region in ("a-1", "b-1", "c-1", "a-1", "d-1"):
        await recorded.call(region)
    await settle()

    assert recorded.open_regions == ["a-1", "c-1", "d-1"]
    await recorded.clients.close()
    assert recorded.open_regions == []


@pytest.mark.parametrize(
    ("failure", "raised"), [(WireError("NoRegion", "give one"), WireError), (OSError("full"), SourceProblemError)]
)
async def test_client_that_cannot_be_opened_is_opened_again(
    recorded: RecordedClients, failure: Exception, raised: type[Exception]
) -> None:
    recorded.fails = [failure]
    with pytest.raises(raised):
        await recorded.call("us-east-1")

    await recorded.call("us-east-1")
    assert recorded.open_regions == ["us-east-1"]
    await recorded.clients.close()


async def test_clients_of_many_roles_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of its own cost each role 8 MB: the model of the security token service, loaded again and again."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    sizes: list[int] = []
    opened: list[Closable] = []
    for number in range(25):
        target = PollTarget(ARN, "us-east-1", role_arn=f"arn:aws:iam::123456789012:role/r{number}", external_id="c/n")
        opened += [stepfunctions.open_client(target), cloudwatch.open_caller(target)]
        sizes.append(_resident_bytes())
    for client in opened:
        await client.close()

    assert sizes[-1] - sizes[4] < 10_000_000, [later - sooner for sooner, later in pairwise(sizes)]


def _resident_bytes() -> int:
    with open("/proc/self/statm") as statm:  # noqa: PTH123
        return int(statm.read().split()[1]) * 4096
