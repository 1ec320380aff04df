"""Rounds of upkeep: when deadlines pass, how often the store is counted, and a store that does not answer."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from activity_worker.taskbroker.broker.limits import Admissions, StoreLimits
from activity_worker.taskbroker.broker.store_counts import StoreCounts, TaskCount
from activity_worker.taskbroker.broker.upkeep_loop import UpkeepListener, UpkeepLoop
from activity_worker.taskbroker.lifecycle.inflight import admit
from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.lifecycle.upkeep import UpkeepStep
from activity_worker.taskbroker.store.broker_store import BrokerStore, QueueDepth
from activity_worker.taskbroker.store.statements import TaskFilter
from tests.clock import Clock
from tests.unit.activity_worker.taskbroker.activations import activation_bytes


@dataclass
class Rounds:
    """A loop whose rounds a test makes, and what its listener was told."""

    store: BrokerStore
    monotonic: Clock = field(default_factory=Clock)
    moved: list[tuple[UpkeepStep, int]] = field(default_factory=list)
    counts: list[Sequence[QueueDepth]] = field(default_factory=list)
    failures: int = 0

    def __post_init__(self) -> None:
        self.store_counts = StoreCounts(self.store, self.counts.append, monotonic=self.monotonic)
        listener = UpkeepListener(lambda *what: self.moved.append(what), self._failed)
        self.loop = UpkeepLoop(
            self.store, self.store_counts, listener, deadline_pause_seconds=60.0, monotonic=self.monotonic
        )

    def _failed(self) -> None:
        self.failures += 1

    async def round(self) -> dict[UpkeepStep, int]:
        """Do a round; return how many activations each step moved, without the steps that were left out."""
        self.moved.clear()
        await self.loop.round()
        return dict(self.moved)


class BrokenTransactions:
    """Transactions of a database that does not answer."""

    async def write(self, _: Any) -> Any:
        raise OSError("no answer")

    single = write

    async def close(self) -> None:
        pass


async def lose_a_task(store: BrokerStore, clock: Clock) -> None:
    """Give a task out, and let its deadline pass."""
    await store.add([admit(activation_bytes(), clock())])
    await store.take(TaskFilter())
    clock.now += 100


async def test_no_deadline_passes_in_the_first_minute(store: BrokerStore, clock: Clock) -> None:
    rounds = Rounds(store)
    await lose_a_task(store, clock)
    rounds.monotonic.now = 59.9
    assert UpkeepStep.PASS_DEADLINES not in await rounds.round()
    rounds.monotonic.now = 60.0
    assert (await rounds.round())[UpkeepStep.PASS_DEADLINES] == 1


async def test_no_deadline_passes_in_the_minute_after_an_outage(store: BrokerStore, clock: Clock) -> None:
    rounds = Rounds(store)
    await lose_a_task(store, clock)
    rounds.monotonic.now = 70.0
    working, store.transactions = store.transactions, BrokenTransactions()
    assert await rounds.round() == {}
    store.transactions = working
    rounds.monotonic.now = 129.9
    assert UpkeepStep.PASS_DEADLINES not in await rounds.round()
    rounds.monotonic.now = 130.0
    assert (await rounds.round())[UpkeepStep.PASS_DEADLINES] == 1
    assert rounds.failures == 1


async def test_outage_is_logged_once(store: BrokerStore, caplog: pytest.LogCaptureFixture) -> None:
    rounds = Rounds(store)
    working, store.transactions = store.transactions, BrokenTransactions()
    with caplog.at_level("INFO"):
        for _ in range(3):
            await rounds.round()
        store.transactions = working
        for _ in range(2):
            await rounds.round()
    said = [record.message for record in caplog.records if record.message.startswith("upkeep")]
    assert said == ["upkeep: the store does not answer", "upkeep: the store answers again"]
    assert rounds.failures == 3


async def test_count_that_takes_long_is_made_less_often(store: BrokerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Rounds(store)

    async def slow() -> Sequence[QueueDepth]:
        rounds.monotonic.now += 2.0
        return []

    monkeypatch.setattr(store, "depths", slow)
    seen = []
    for _ in range(30):
        await rounds.round()
        seen.append(len(rounds.counts))
        rounds.monotonic.now += 1.0
    # Two seconds of counting, twenty of rest.
    assert seen[0] == 1
    assert seen[19] == 1
    assert seen[-1] == 2


async def test_count_is_fresh_when_asked_for_and_shared_by_callers(store: BrokerStore, clock: Clock) -> None:
    rounds = Rounds(store)
    await rounds.round()
    await store.add([admit(activation_bytes(), clock())])
    # A tenth of a second after a count that took no time.
    await asyncio.gather(*(rounds.store_counts.refresh() for _ in range(5)))
    assert len(rounds.counts) == 1
    rounds.monotonic.now += 0.1
    await asyncio.gather(*(rounds.store_counts.refresh() for _ in range(5)))
    assert len(rounds.counts) == 2
    assert rounds.store_counts.count(None, None).pending == 1


async def test_counts_are_by_application_and_namespace_and_for_any(
    store: BrokerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        QueueDepth("shop", "mail", ActivationState.PENDING, 3, 50.0),
        QueueDepth("shop", "mail", ActivationState.PROCESSING, 2, 10.0),
        QueueDepth("shop", "mail", ActivationState.DELAY, 9, 5.0),
        QueueDepth("shop", "mail", ActivationState.CLAIMED, 1, 40.0),
        QueueDepth("shop", "images", ActivationState.PENDING, 5, 30.0),
        QueueDepth("", "mail", ActivationState.PENDING, 7, 20.0),
        QueueDepth("", "mail", ActivationState.RETRY, 8, 1.0),
    ]

    async def depths() -> Sequence[QueueDepth]:
        return found

    monkeypatch.setattr(store, "depths", depths)
    counts = StoreCounts(store, lambda _: None)
    await counts.refresh()
    assert counts.count("shop", "mail") == TaskCount(4, 2, 40.0)
    assert counts.count("shop", None) == TaskCount(9, 2, 30.0)
    assert counts.count(None, "mail") == TaskCount(11, 2, 20.0)
    assert counts.count(None, None) == TaskCount(16, 2, 20.0)
    assert counts.count("", "mail") == TaskCount(7, 0, 20.0)
    assert counts.count("shop", "other") == TaskCount()


def depth(state: ActivationState, count: int) -> QueueDepth:
    return QueueDepth("", "mail", state, count, 0.0)


@pytest.mark.parametrize(
    ("depths", "added", "refusal"),
    [
        ([], 0, ""),
        ([depth(ActivationState.PENDING, 9)], 0, ""),
        ([depth(ActivationState.PENDING, 9)], 1, "10 tasks wait, and --max-pending is 10"),
        ([depth(ActivationState.PENDING, 4), depth(ActivationState.DELAY, 6)], 0, "10 tasks wait"),
        ([depth(ActivationState.PROCESSING, 5)], 0, "workers have 5 tasks, and --max-processing is 5"),
        ([depth(ActivationState.COMPLETE, 99)], 0, ""),
    ],
)
def test_limits_count_the_store_and_what_came_since(depths: list[QueueDepth], added: int, refusal: str) -> None:
    admissions = Admissions(StoreLimits(max_pending=10, max_processing=5))
    admissions.added(3)
    admissions.counted(depths)
    admissions.added(added)
    assert admissions.refusal().startswith(refusal)
    assert bool(admissions.refusal()) == bool(refusal)
