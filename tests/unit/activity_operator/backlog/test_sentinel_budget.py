"""Polls of many pools under one budget of leases: bounded, fair, and without a lost task."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from activity_operator.backlog.lease_budget import LeaseBudget
from activity_operator.backlog.protocol import Key, LeaseCounts, LeaseTotals, PollTarget
from activity_operator.backlog.sentinel import Sentinels
from activity_operator.core.decision import SentinelOrder
from activity_worker.contract import LeasedTask
from tests.unit.activity_operator.virtual_time import settle, wall

REST = SentinelOrder(polls=2, take=10)
BURST = SentinelOrder(polls=10, take=100)


class Service:
    """A task service: a poll gets a waiting task of its activity at once, else the next one or nothing after 60 s."""

    def __init__(self) -> None:
        self.waiting: dict[str, int] = {}
        self.open: dict[str, list[asyncio.Future[None]]] = {}

    def start(self, arn: str, tasks: int) -> None:
        """Let tasks arrive; open polls get the first ones."""
        self.waiting[arn] = self.waiting.get(arn, 0) + tasks
        for poll in self.open.pop(arn, [])[:tasks]:
            if not poll.done():
                poll.set_result(None)

    async def poll(self, target: PollTarget) -> LeasedTask | None:
        if not self.waiting.get(target.arn):
            arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.open.setdefault(target.arn, []).append(arrived)
            await asyncio.wait([arrived], timeout=60.0)
            if not arrived.done():
                return None
        else:
            await asyncio.sleep(0.05)
        if not self.waiting.get(target.arn):
            return None
        self.waiting[target.arn] -= 1
        return LeasedTask(f"{target.arn} {self.waiting[target.arn]}", "{}")

    async def heartbeat(self, target: PollTarget, token: str) -> None:
        raise NotImplementedError

    async def fail(self, target: PollTarget, token: str, error: str, cause: str) -> None:
        raise NotImplementedError


class Pools:
    """Pools with a sentinel each and their leases, 10 bytes per lease."""

    def __init__(self, budget: LeaseBudget) -> None:
        self.service = Service()
        self.leases: dict[Key, int] = {}
        self.changes: list[Key] = []
        self.most = 0
        self.sentinels = Sentinels(
            self.service,
            holdings=lambda key: LeaseCounts(held=self.held(key), size_bytes=10 * self.held(key)),
            totals=self.totals,
            budget=budget,
            on_task=self._take,
            on_change=self.changes.append,
            now=wall,
            jitter=lambda: 1.0,
        )

    def held(self, key: Key) -> int:
        return self.leases.get(key, 0)

    def totals(self) -> LeaseTotals:
        total = sum(self.leases.values())
        return LeaseTotals(total, 10 * total, sum(count > 0 for count in self.leases.values()))

    def order(self, name: str, order: SentinelOrder) -> Key:
        key = ("media", name)
        self.sentinels.order(key, order, PollTarget(name))
        return key

    def conclude(self, key: Key, leases: int) -> None:
        """End leases of the pool, as when its workers have started."""
        self.leases[key] -= leases
        self.sentinels.leases_changed(key)

    def _take(self, key: Key, _uid: str, _target: PollTarget, _task: LeasedTask) -> None:
        self.leases[key] = self.held(key) + 1
        self.most = max(self.most, self.totals().leases)


@pytest.fixture
async def pools() -> AsyncIterator[Pools]:
    before = asyncio.all_tasks()
    yield Pools(LeaseBudget(leases=40, size_bytes=10_000))
    for task in asyncio.all_tasks() - before - {asyncio.current_task()}:
        task.cancel()
    await settle()


@pytest.mark.parametrize("number", [2, 4, 10, 20])
async def test_leases_of_pools_that_start_together_stay_within_the_budget(pools: Pools, number: int) -> None:
    """A pool takes its first lease with a poll at rest; each further lease raises its order."""
    names = [f"p{index}" for index in range(number)]
    for name in names:
        pools.order(name, REST)
    await asyncio.sleep(1.0)
    for name in names:
        pools.service.start(name, 1000)
    for _ in range(200):
        await asyncio.sleep(0.05)
        for name in names:
            held = pools.held(("media", name))
            pools.order(name, SentinelOrder(min(10, max(2, 2 * held), 100 - held), 100))

    assert 40 - number <= pools.most <= 40 + number
    assert pools.totals().leases + sum(pools.service.waiting.values()) == 1000 * number


async def test_idle_polls_do_not_use_up_the_budget(pools: Pools) -> None:
    for index in range(10):
        key = pools.order(f"idle{index}", BURST)
        pools.leases[key] = 1
        pools.sentinels.leases_changed(key)
    await asyncio.sleep(1.0)
    pools.service.start("p", 1000)
    key = pools.order("p", BURST)
    await asyncio.sleep(1.0)

    assert pools.held(key) >= 40 // 11


async def test_task_that_an_open_poll_brings_above_the_budget_is_kept(pools: Pools) -> None:
    key = pools.order("p", REST)
    await asyncio.sleep(1.0)
    pools.leases[("media", "other")] = 40
    pools.service.start("p", 1)
    await asyncio.sleep(1.0)

    assert pools.held(key) == 1
    assert pools.totals().leases == 41


async def test_single_pool_never_exceeds_the_budget(pools: Pools) -> None:
    pools.service.start("p", 1000)
    key = pools.order("p", BURST)
    await asyncio.sleep(300.0)

    assert pools.held(key) == 40
    assert "heldLeases" in pools.sentinels.facts(key).withheld


async def test_bytes_close_polls_as_leases_do() -> None:
    pools = Pools(LeaseBudget(leases=500, size_bytes=200))
    pools.service.start("p", 1000)
    key = pools.order("p", BURST)
    await asyncio.sleep(300.0)

    assert 20 <= pools.held(key) <= 30
    assert pools.sentinels.facts(key).open_polls == 0


async def test_room_that_appears_with_time_is_used(pools: Pools) -> None:
    pools.service.start("p", 1000)
    key = pools.order("p", BURST)
    await asyncio.sleep(10.0)

    pools.leases[key] -= 10  # no lease changed: bytes of ended leases ceased to count
    await asyncio.sleep(10.0)

    assert pools.held(key) == 40


async def test_pool_without_a_lease_starts_although_the_budget_is_used_up(pools: Pools) -> None:
    pools.service.start("greedy", 1000)
    greedy = pools.order("greedy", BURST)
    await asyncio.sleep(10.0)
    assert pools.held(greedy) == 40

    late = pools.order("late", REST)
    await asyncio.sleep(10.0)
    pools.service.start("late", 1)
    await asyncio.sleep(1.0)

    assert pools.held(late) == 1


async def test_room_that_becomes_free_goes_to_the_pool_below_its_share(pools: Pools) -> None:
    pools.service.start("greedy", 1000)
    greedy = pools.order("greedy", BURST)
    await asyncio.sleep(10.0)
    pools.service.start("late", 1000)
    late = pools.order("late", BURST)
    await asyncio.sleep(10.0)
    before = pools.held(late)

    pools.conclude(greedy, 15)
    await asyncio.sleep(10.0)

    assert pools.held(greedy) == 25
    assert pools.held(late) > before
    assert pools.held(late) <= 20


async def test_budget_that_stops_a_pool_notifies_it_once_and_once_at_its_end(pools: Pools) -> None:
    pools.service.start("p", 50)
    key = pools.order("p", BURST)
    await asyncio.sleep(100.0)
    assert pools.changes == [key]

    pools.conclude(key, 40)
    await asyncio.sleep(200.0)

    assert pools.held(key) == 10
    assert pools.sentinels.facts(key).withheld == ""
    assert pools.changes == [key, key]


async def test_order_without_polls_ends_the_message_of_the_budget(pools: Pools) -> None:
    pools.service.start("p", 1000)
    key = pools.order("p", BURST)
    await asyncio.sleep(10.0)

    pools.order("p", SentinelOrder())

    assert pools.sentinels.facts(key).withheld == ""
    assert pools.changes == [key, key]
