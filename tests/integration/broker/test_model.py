"""Both stores do what a dict does, whatever happens in whatever order."""

import asyncio
import itertools
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select

from activity_worker.taskbroker.lifecycle.inflight import FailureReason, Inflight, Outcome, admit
from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.lifecycle.upkeep import DeadLetter, UpkeepStep
from activity_worker.taskbroker.protocol.activation import OnAttemptsExceeded, RetryState, parse_activation
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.claims import Claim, claim_tasks, deliver_claims, release_claims
from activity_worker.taskbroker.store.statements import Report, TaskFilter
from activity_worker.taskbroker.store.tables import ACTIVATIONS, DEAD_LETTERS, FINISHED_IDS, inflight_of, letter_of
from tests.clock import Clock
from tests.integration.broker.conftest import POLICY
from tests.unit.activity_worker.taskbroker.activations import CLAIM_SECONDS, NOW, DictStore, activation_bytes


@dataclass(frozen=True)
class Add:
    """Add the task of a number; the same number again is the same id. A call may wait for a task meanwhile."""

    number: int
    delay: int | None
    expires: int | None
    once: bool
    kept: bool
    waits: bool = False


@dataclass(frozen=True)
class Take:
    """Give a task out."""


@dataclass(frozen=True)
class ClaimOne:
    """Claim a task for a push."""


@dataclass(frozen=True)
class EndClaim:
    """Deliver or release the claim at a place in the order."""

    place: int
    accepted: bool


@dataclass(frozen=True)
class Tell:
    """Report the task that was given out at a place in the order."""

    place: int
    outcome: Outcome


@dataclass(frozen=True)
class Wait:
    """Let time pass, or step back."""

    seconds: int


@dataclass(frozen=True)
class Keep:
    """Do the steps of upkeep."""


SPANS = st.none() | st.integers(0, 20)
ACTS = st.one_of(
    st.builds(Add, st.integers(0, 8), SPANS, SPANS, st.booleans(), st.booleans(), st.booleans()),
    st.just(Take()),
    st.just(ClaimOne()),
    st.builds(EndClaim, st.integers(0, 4), st.booleans()),
    st.builds(Tell, st.integers(0, 8), st.sampled_from(Outcome)),
    st.builds(Wait, st.integers(-5, 30)),
    st.just(Keep()),
)
KEPT = Add(0, None, None, once=False, kept=True)
PUSHES = [*[KEPT, ClaimOne(), EndClaim(0, accepted=False), ClaimOne(), EndClaim(1, accepted=True)], Wait(9), Keep()]
PUSHED_ONCE = [Add(1, None, None, once=True, kept=True), ClaimOne(), Wait(13), Keep(), EndClaim(0, accepted=False)]
#: Every state of a pulled task, and every reason of a dead letter; an id is free a minute after it was added.
EVERY_END = [
    *(KEPT, *[Take(), Wait(14), Keep()] * 3, Wait(30)),
    *(KEPT, Take(), Tell(3, Outcome.RETRY), Keep(), Take(), Tell(4, Outcome.FAILURE), Keep()),
    *(Add(1, 5, 2, once=False, kept=True), Wait(3), Keep()),
    *(Add(2, None, None, once=True, kept=False), Take(), Tell(5, Outcome.COMPLETE), Keep()),
]


@dataclass
class Pair:
    """A store and a dict that get the same calls."""

    store: BrokerStore
    model: DictStore
    clock: Clock

    def __post_init__(self) -> None:
        self.given: list[str] = []
        self.claims: list[tuple[Claim, Inflight]] = []

    async def act(self, act: Any) -> None:
        match act:
            case Add():
                exceeded = OnAttemptsExceeded.DEADLETTER if act.kept else OnAttemptsExceeded.DISCARD
                retry = RetryState(0, 3, exceeded, at_most_once=act.once)
                data = activation_bytes(f"task-{act.number}", retry=retry, delay=act.delay, expires=act.expires)
                admitted = [admit(data, self.clock())]
                if act.waits:
                    added, given = await self.store.add_giving(admitted, TaskFilter(), 1)
                    assert added == self.model.add(data, self.clock())
                    self._check_given(given[0].data if given else None)
                else:
                    assert await self.store.add(admitted) == self.model.add(data, self.clock())
            case Take():
                self._check_given(await self.store.take(TaskFilter()))
            case ClaimOne():
                await self._claim()
            case EndClaim() if act.place < len(self.claims):
                await self._end_claim(*self.claims[act.place], accepted=act.accepted)
            case Tell() if act.place < len(self.given):
                task_id = self.given[act.place]
                changed, _ = await self.store.report([Report(task_id, act.outcome)])
                assert changed == self.model.report(task_id, act.outcome)
            case Wait():
                self.clock.now += act.seconds
            case Keep():
                for step in UpkeepStep:
                    await self.store.upkeep(step)
                self.model.upkeep(self.clock())

    def _check_given(self, data: bytes | None) -> None:
        """Compare what the store has given out with what the dict gives out now."""
        given = self.model.take(self.clock())
        task_id = None if data is None else parse_activation(data).id
        assert task_id == (given.id if given else None)
        if task_id:
            self.given.append(task_id)

    async def _claim(self) -> None:
        claims = await claim_tasks(self.store, TaskFilter(), 1, CLAIM_SECONDS)
        claimed = self.model.claim(self.clock())
        assert [(one.id, one.attempt) for one in claims] == ([(claimed.id, claimed.attempts)] if claimed else [])
        if claimed:
            self.claims.append((claims[0], claimed))
            self.given.append(claimed.id)

    async def _end_claim(self, ours: Claim, theirs: Inflight, *, accepted: bool) -> None:
        ended = await (deliver_claims if accepted else release_claims)(self.store, [ours])
        assert ended == self.model.end_claim(theirs, self.clock(), accepted=accepted)

    async def compare(self) -> None:
        async with self.store.engine.connect() as connection:
            rows = (await connection.execute(select(ACTIVATIONS).order_by(ACTIVATIONS.c.number))).all()
            letters = (await connection.execute(select(DEAD_LETTERS).order_by(DEAD_LETTERS.c.number))).all()
        assert [inflight_of(row) for row in rows] == list(self.model.rows.values())
        assert [letter_of(row) for row in letters] == self.model.dead


async def clear(store: BrokerStore) -> None:
    for table in (ACTIVATIONS, DEAD_LETTERS, FINISHED_IDS):
        await store.transactions.write(lambda connection, table=table: connection.execute(delete(table)))  # type: ignore[misc]


def test_store_does_what_a_dict_does(url: str) -> None:
    clock = Clock()
    seen: set[ActivationState] = set()
    letters: list[DeadLetter] = []

    with asyncio.Runner() as runner:
        store = runner.run(BrokerStore.open(url, POLICY, clock=clock))

        async def run(acts: list[Any]) -> None:
            await clear(store)
            clock.now = NOW
            store._new_id = lambda: next(ids)
            ids, ids_there = ((f"retry-{number}" for number in itertools.count()) for _ in range(2))
            pair = Pair(store, DictStore(ids_there), clock)
            for act in acts:
                await pair.act(act)
                await pair.compare()
                seen.update(row.state for row in pair.model.rows.values())
            letters.extend(pair.model.dead)

        @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
        @example(EVERY_END)
        @example(PUSHES)
        @example(PUSHED_ONCE)
        @given(st.lists(ACTS, min_size=5, max_size=25))
        def check(acts: list[Any]) -> None:
            runner.run(run(acts))

        try:
            check()
        finally:
            runner.run(store.close())
    assert seen >= set(ActivationState)
    assert {letter.reason for letter in letters} == set(FailureReason)


def test_rows_hold_every_field_of_an_activation() -> None:
    assert {column.name for column in ACTIVATIONS.c} == {"number", *Inflight.__dataclass_fields__}
    assert {column.name for column in DEAD_LETTERS.c} == {"number", *DeadLetter.__dataclass_fields__}
