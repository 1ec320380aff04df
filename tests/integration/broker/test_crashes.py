"""A broker that dies before, within and after each write: the next one on the store goes on, and nothing is lost."""

from collections import Counter

import pytest

from activity_worker.database.engine import connect
from activity_worker.taskbroker.lifecycle.inflight import Outcome, admit
from activity_worker.taskbroker.lifecycle.upkeep import UpkeepStep
from activity_worker.taskbroker.protocol.activation import OnAttemptsExceeded, RetryState, parse_activation
from activity_worker.taskbroker.store import dead_letters
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.statements import Report, TaskFilter
from tests.clock import Clock
from tests.integration.broker.conftest import POLICY
from tests.integration.steps.crash_simulation import CrashError, CrashingTransactions, CrashPlan, Moment
from tests.unit.activity_worker.taskbroker.activations import NOW, activation_bytes

#: What the handler of each task does at its first and its later tries.
HANDLERS = {
    "good": [Outcome.COMPLETE],
    "again": [Outcome.RETRY, Outcome.RETRY, Outcome.COMPLETE],
    "bad": [Outcome.FAILURE],
    "later": [Outcome.COMPLETE],
    "once": [Outcome.COMPLETE],
}
#: Writes of the story below without a crash.
WRITES = 29


class Story:
    """A producer, a broker that may die at any write, and a worker that keeps a log of its own."""

    def __init__(self, url: str, plan: CrashPlan) -> None:
        self.url, self.plan = url, plan
        self.clock = Clock(NOW)
        self.store: BrokerStore | None = None
        self.runs: Counter[str] = Counter()

    async def broker(self) -> BrokerStore:
        """Return the broker's store; a dead broker has a successor."""
        if self.store is None:
            self.store = BrokerStore(await connect(self.url), POLICY, clock=self.clock)
            self.store.transactions = CrashingTransactions(self.store.transactions, self.plan)
        return self.store

    async def close(self) -> None:
        if self.store is not None:
            await self.store.close()
            self.store = None

    async def produce(self) -> None:
        """Enqueue until a broker has said that it has the tasks."""
        while True:
            store = await self.broker()
            try:
                await store.add([admit(data, self.clock()) for data in tasks()])
            except CrashError:
                await self.close()
            else:
                return

    async def work(self) -> None:
        """Poll, run, report; a report that is not answered is sent again, to the next broker."""
        unsent: list[Report] = []
        while True:
            store = await self.broker()
            try:
                if unsent:
                    _, data = await store.report(unsent, TaskFilter())
                    unsent = []
                else:
                    data = await store.take(TaskFilter())
            except CrashError:
                await self.close()
                continue
            if data is None:
                return
            activation = parse_activation(data)
            self.runs[activation.taskname] += 1
            tries = HANDLERS[activation.taskname]
            attempt = activation.retry.attempts if activation.retry else 0
            unsent = [Report(activation.id, tries[min(attempt, len(tries) - 1)])]

    async def keep(self) -> None:
        """Do the steps of upkeep; the successor of a dead broker begins with the first one."""
        while True:
            store = await self.broker()
            try:
                for step in UpkeepStep:
                    await store.upkeep(step)
            except CrashError:
                await self.close()
            else:
                return

    async def run(self) -> None:
        """Go on until the store is empty."""
        await self.produce()
        for _ in range(30):
            await self.work()
            self.clock.now += 20
            await self.keep()
            if not await (await self.broker()).depths():
                return
        raise AssertionError(f"the store is not empty: {await (await self.broker()).depths()}")


def tasks() -> list[bytes]:
    kept = RetryState(0, 3, OnAttemptsExceeded.DEADLETTER)
    once = RetryState(0, 1, OnAttemptsExceeded.DEADLETTER, at_most_once=True)
    return [
        activation_bytes(
            name, taskname=name, retry=once if name == "once" else kept, delay=5 if name == "later" else None
        )
        for name in HANDLERS
    ]


@pytest.fixture
async def tables(url: str) -> str:
    """The URL of a store whose tables are there, so that opening it again takes no time."""
    await (await BrokerStore.open(url)).close()
    return url


async def test_broker_without_a_crash(tables: str) -> None:
    story = Story(tables, CrashPlan())
    await story.run()
    letters = await dead_letters.list_dead_letters(await story.broker())
    await story.close()
    assert story.runs == {"good": 1, "again": 3, "bad": 1, "later": 1, "once": 1}
    assert [stored.letter.id for stored in letters] == ["bad"]
    # The next test ends the broker at each of these writes.
    assert story.plan.writes == WRITES


# In parts, because every test has a time limit, and the machine may be busy.
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("moment", ["before", "within", "after"])
async def test_broker_dies_at_each_write(tables: str, moment: Moment, part: int) -> None:
    for write in range(1 + part, WRITES + 1, 3):
        story = Story(tables, CrashPlan(moment, frozenset([write])))
        await story.run()
        store = await story.broker()
        letters = [stored.letter.id for stored in await dead_letters.list_dead_letters(store)]
        await dead_letters.purge_dead_letters(store, before=float("inf"))
        await story.close()
        where = f"{moment} write {write}: {dict(story.runs)}, {letters}"
        assert story.plan.crashes == 1, where
        # A task given out by a dead broker whose answer was lost comes again after its deadline, except at most once.
        assert story.runs["once"] == 1 or (story.runs["once"], "once" in letters) == (0, True), where
        assert all(story.runs[name] == 1 for name in ("good", "later")), where
        assert story.runs["again"] == 3, where
        assert story.runs["bad"] == 1, where
        assert sorted(set(letters) - {"once"}) == ["bad"], where
