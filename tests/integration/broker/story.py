"""A story of a broker's store: producers, brokers that may die at any write, workers with a log of their own, a person.

Between them its tasks make every write that a store has, and every step of upkeep.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection

from activity_worker.database.engine import Transactions, connect
from activity_worker.taskbroker.lifecycle.inflight import Outcome, admit
from activity_worker.taskbroker.lifecycle.upkeep import UpkeepStep
from activity_worker.taskbroker.protocol.activation import OnAttemptsExceeded, RetryState, parse_activation
from activity_worker.taskbroker.store import dead_letters
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.statements import Report, TaskFilter
from tests.clock import Clock
from tests.integration.broker.conftest import POLICY
from tests.integration.steps.crash_simulation import CrashError, CrashingTransactions, CrashPlan
from tests.unit.activity_worker.taskbroker.activations import NOW, activation_bytes

T = TypeVar("T")
#: The outcomes of each task's tries; None is a worker that dies. The last one is repeated.
HANDLERS: dict[str, Sequence[Outcome | None]] = {
    "good": [Outcome.COMPLETE],
    "again": [Outcome.RETRY, Outcome.RETRY, Outcome.COMPLETE],
    "bad": [Outcome.FAILURE],
    "later": [Outcome.COMPLETE],
    "once": [Outcome.COMPLETE],
    "lost": [None, Outcome.COMPLETE],
    "lost-once": [None],
    "hopeless": [None],
    "expired": [Outcome.COMPLETE],
    "requeued": [Outcome.FAILURE, Outcome.COMPLETE],
}
#: How often a handler runs without a crash.
RUNS = {
    "good": 1,
    "again": 3,
    "bad": 1,
    "later": 1,
    "once": 1,
    "lost": 2,
    "lost-once": 1,
    "hopeless": POLICY.max_attempts,
    "requeued": 2,
}
#: The dead letters that are left, by reason.
LETTERS = {"bad": "reported", "lost-once": "deadline", "hopeless": "deadline", "expired": "expired"}
AT_MOST_ONCE = frozenset({"once", "lost-once"})


class ObservedTransactions:
    """Transactions that tell of each write before it is made: the name of the function that makes it."""

    def __init__(self, transactions: Transactions, observe: Callable[[str], None]) -> None:
        self._transactions = transactions
        self._observe = observe

    async def write(self, work: Callable[[Connection], T]) -> T:
        """See Transactions."""
        self._observe(work.__qualname__.partition(".<locals>")[0])
        return await self._transactions.write(work)

    async def single(self, work: Callable[[Connection], T]) -> T:
        """See Transactions."""
        self._observe(work.__qualname__.partition(".<locals>")[0])
        return await self._transactions.single(work)

    async def close(self) -> None:
        """See Transactions."""
        await self._transactions.close()


@dataclass
class Story:
    """`observe` is called with the number of each write. `patience_seconds` pass between two rounds of upkeep."""

    url: str
    plan: CrashPlan = field(default_factory=CrashPlan)
    observe: Callable[[int], None] = lambda _: None
    patience_seconds: float = 20.0
    clock: Clock = field(default_factory=lambda: Clock(NOW))
    #: Runs of each handler, as the handlers count them.
    runs: Counter[str] = field(default_factory=Counter)
    writers: list[str] = field(default_factory=list)
    moved: Counter[UpkeepStep] = field(default_factory=Counter)
    _store: BrokerStore | None = None

    async def broker(self) -> BrokerStore:
        """Return the broker's store; a dead broker has a successor."""
        if self._store is None:
            store = self._store = BrokerStore(await connect(self.url), POLICY, clock=self.clock)
            store.transactions = ObservedTransactions(CrashingTransactions(store.transactions, self.plan), self._wrote)
        return self._store

    async def close(self) -> None:
        """End the broker."""
        if self._store is not None:
            await self._store.close()
            self._store = None

    async def run(self) -> None:
        """Go on until the store is empty."""
        *most, last = tasks()
        await self._insist(lambda store: store.add([admit(data, self.clock()) for data in most]))
        # A worker waits for a task meanwhile.
        adding = [admit(last, self.clock())]
        _, given = await self._insist(lambda store: store.add_giving(adding, TaskFilter(), 1))
        await self._work(given[0].data)
        for _ in range(30):
            await self._work()
            self.clock.now += self.patience_seconds
            await self._insist(self._keep)
            await self._requeue()
            if not await (await self.broker()).depths():
                return
        raise AssertionError(f"the store is not empty: {await (await self.broker()).depths()}")

    async def letters(self) -> dict[str, str]:
        """Return the dead letters, with their reasons, and purge them."""
        store = await self.broker()
        found = await dead_letters.list_dead_letters(store)
        assert len({stored.letter.id for stored in found}) == len(found), found
        await self._insist(lambda store: dead_letters.purge_dead_letters(store, before=float("inf")))
        return {stored.letter.taskname: stored.letter.reason.value for stored in found}

    def _wrote(self, writer: str) -> None:
        self.writers.append(writer)
        self.observe(len(self.writers))

    async def _insist(self, act: Callable[[BrokerStore], Awaitable[T]]) -> T:
        """Act until a broker lives long enough to answer."""
        while True:
            store = await self.broker()
            try:
                return await act(store)
            except CrashError:
                await self.close()

    async def _work(self, data: bytes | None = None) -> None:
        """Run a task, report and poll until no task is pending; a report without an answer is sent again."""
        unsent: list[Report] = []
        while True:
            data = data or await self._insist(partial(self._next_task, unsent))
            if data is None:
                return
            activation = parse_activation(data)
            tries = HANDLERS[activation.taskname]
            outcome = tries[min(self.runs[activation.taskname], len(tries) - 1)]
            self.runs[activation.taskname] += 1
            unsent = [] if outcome is None else [Report(activation.id, outcome)]
            data = None

    async def _next_task(self, unsent: Sequence[Report], store: BrokerStore) -> bytes | None:
        if not unsent:
            return await store.take(TaskFilter())
        return (await store.report(unsent, TaskFilter()))[1]

    async def _keep(self, store: BrokerStore) -> None:
        """Do the steps of upkeep; the successor of a dead broker begins with the first one."""
        for step in UpkeepStep:
            self.moved[step] += await store.upkeep(step)

    async def _requeue(self) -> None:
        """Requeue the dead letter of one task, as a person does: a second time only if the letter is still there."""

        async def requeue(store: BrokerStore) -> None:
            for stored in await dead_letters.list_dead_letters(store):
                if stored.letter.taskname == "requeued":
                    await dead_letters.requeue_dead_letter(store, stored.number)

        if self.runs["requeued"]:
            await self._insist(requeue)


def tasks() -> list[bytes]:
    """Return the story's activations."""
    kept = RetryState(0, 3, OnAttemptsExceeded.DEADLETTER)
    once = RetryState(0, 1, OnAttemptsExceeded.DEADLETTER, at_most_once=True)
    return [
        activation_bytes(
            name,
            taskname=name,
            retry=once if name in AT_MOST_ONCE else kept,
            delay={"later": 5, "expired": 15}.get(name),
            expires=5 if name == "expired" else None,
        )
        for name in HANDLERS
    ]
