"""Calls that wait at a broker, with a store that a test fills."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from activity_worker.taskbroker.broker import waiting_calls
from activity_worker.taskbroker.broker.waiting_calls import Offer, OfferReceiver, WaitingCalls
from activity_worker.taskbroker.store.statements import GivenOut, TaskFilter
from tests.eventually import eventually

ANY = TaskFilter()
MAIL = TaskFilter(namespace="mail")
#: Beyond any test: a call that is not woken never ends.
LONG = 1e6


class Queue:
    """Tasks, the callers in the order in which they got one, and all looks."""

    def __init__(self) -> None:
        self.tasks: list[str] = []
        self.got: list[str] = []
        self.looks: list[str] = []

    def take(self, caller: str) -> Callable[[], Awaitable[Sequence[str]]]:
        async def taking() -> Sequence[str]:
            self.looks.append(caller)
            await asyncio.sleep(0)
            if not self.tasks:
                return []
            self.got.append(caller)
            return [self.tasks.pop(0)]

        return taking


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> WaitingCalls:
    """Without looks for the tasks of other processes, and without an end of a wait."""
    monkeypatch.setattr(waiting_calls, "MAX_WAIT_SECONDS", LONG)
    return WaitingCalls(look_seconds=LONG)


async def ended(calls: Sequence[asyncio.Task[Sequence[str]]]) -> list[Sequence[str]]:
    async with asyncio.timeout(60):
        return await asyncio.gather(*calls)


async def begun(
    waiting: WaitingCalls, queue: Queue, *callers: str, wanted: TaskFilter = ANY
) -> list[asyncio.Task[Sequence[str]]]:
    """Let calls wait, one after the other, until each first look is over."""
    calls = list[asyncio.Task[Sequence[str]]]()
    for caller in callers:
        before = len(queue.looks)
        calls.append(asyncio.create_task(waiting.first(wanted, LONG, queue.take(caller))))
        # The first call of the line looks.
        await eventually("the line was looked at", lambda before=before: len(queue.looks) > before)  # type: ignore[misc]
    return calls


async def test_call_without_a_wait_is_answered_at_once(waiting: WaitingCalls, queue: Queue) -> None:
    assert await waiting.first(ANY, 0.0, queue.take("one")) == []
    assert await waiting.first(ANY, 0.01, queue.take("one")) == []
    queue.tasks = ["task"]
    assert await waiting.first(ANY, LONG, queue.take("one")) == ["task"]
    assert waiting.number == 0


async def test_tasks_go_to_calls_in_the_order_of_their_coming(waiting: WaitingCalls, queue: Queue) -> None:
    calls = await begun(waiting, queue, "one", "two", "three")
    queue.tasks = ["a", "b", "c"]
    waiting.added({("", "mail")})
    assert await ended(calls) == [["a"], ["b"], ["c"]]
    assert queue.got == ["one", "two", "three"]


async def test_only_the_first_call_of_a_line_looks(waiting: WaitingCalls, queue: Queue) -> None:
    calls = await begun(waiting, queue, "one", "two", "three")
    queue.looks.clear()
    waiting.wake()
    await eventually("the first one looks", lambda: queue.looks == ["one"])
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert waiting.number == 0


async def test_call_that_is_given_up_leaves_its_turn_to_the_next(waiting: WaitingCalls, queue: Queue) -> None:
    first, second = await begun(waiting, queue, "one", "two")
    queue.tasks = ["task"]
    waiting.wake()
    first.cancel()
    assert await ended([second]) == [["task"]]
    assert queue.got == ["two"]


async def test_added_tasks_wake_those_who_want_them(waiting: WaitingCalls, queue: Queue) -> None:
    (call,) = await begun(waiting, queue, "mail", wanted=MAIL)
    queue.looks.clear()
    waiting.added({("shop", "image")})
    for _ in range(10):
        await asyncio.sleep(0)
    assert queue.looks == []
    queue.tasks = ["task"]
    waiting.added({("shop", "mail")})
    assert await ended([call]) == [["task"]]


async def test_first_call_looks_for_tasks_of_other_processes(queue: Queue) -> None:
    waiting = WaitingCalls(look_seconds=0.01)
    (call,) = await begun(waiting, queue, "one")
    queue.tasks = ["task"]
    assert await ended([call]) == [["task"]]


async def test_number_of_waiting_calls_is_bounded(
    waiting: WaitingCalls, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_calls, "MAX_WAITING", 2)
    calls = await begun(waiting, queue, "one", "two")
    assert await waiting.first(ANY, LONG, queue.take("three")) == []
    waiting.close()
    assert await ended(calls) == [[], []]
    assert await waiting.first(ANY, LONG, queue.take("four")) == []


async def test_time_of_a_wait_is_bounded(waiting: WaitingCalls, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_calls, "MAX_WAIT_SECONDS", 0.01)
    assert await waiting.first(ANY, 1e9, queue.take("one")) == []


class Offered:
    """How a call takes offers, with those that it accepted or declined."""

    def __init__(self) -> None:
        self.accepted: list[Offer] = []
        self.declined: list[Offer] = []

    @property
    def receiver(self) -> OfferReceiver[Sequence[str]]:
        return OfferReceiver(3, self.accept, self.declined.append)

    async def accept(self, offer: Offer) -> Sequence[str]:
        self.accepted.append(offer)
        _, given = await offer
        return [one.data.decode() for one in given]


def transaction(*tasks: str) -> Offer:
    """Return a transaction that has given these tasks out."""
    offer: Offer = asyncio.get_running_loop().create_future()
    offer.set_result((1, [GivenOut(1, 1, task.encode()) for task in tasks]))
    return offer


async def waits_for_offers(waiting: WaitingCalls, queue: Queue, taken: Offered) -> asyncio.Task[Sequence[str]]:
    call = asyncio.create_task(waiting.first(MAIL, LONG, queue.take("one"), taken.receiver))
    await eventually("the first look has begun", lambda: queue.looks)
    for _ in range(10):
        await asyncio.sleep(0)
    return call


def refuse(_: TaskFilter, __: int) -> Offer:
    raise AssertionError("there is no call for this offer")


async def test_call_gets_what_is_offered_without_a_look(waiting: WaitingCalls, queue: Queue) -> None:
    taken = Offered()
    call = await waits_for_offers(waiting, queue, taken)
    queue.looks.clear()
    asked: list[tuple[TaskFilter, int]] = []

    def begin(wanted: TaskFilter, most: int) -> Offer:
        asked.append((wanted, most))
        return transaction("task")

    assert waiting.offer({("", "image")}, refuse) is None
    assert waiting.offer({("", "mail")}, begin) is not None
    # The call has one offer at a time.
    assert waiting.offer({("", "mail")}, refuse) is None
    assert await ended([call]) == [["task"]]
    assert (asked, queue.looks) == ([(MAIL, 3)], [])


async def test_call_looks_and_waits_after_an_offer_without_a_task(waiting: WaitingCalls, queue: Queue) -> None:
    taken = Offered()
    call = await waits_for_offers(waiting, queue, taken)
    queue.looks.clear()
    waiting.offer({("", "mail")}, lambda *_: transaction())
    await eventually("it looks", lambda: queue.looks == ["one"])
    for _ in range(10):
        await asyncio.sleep(0)
    waiting.offer({("", "mail")}, lambda *_: transaction("task"))
    assert await ended([call]) == [["task"]]


async def test_call_that_is_given_up_declines_its_offer(waiting: WaitingCalls, queue: Queue) -> None:
    taken = Offered()
    call = await waits_for_offers(waiting, queue, taken)
    offer = waiting.offer({("", "mail")}, lambda *_: transaction("task"))
    # Before the call hears of it.
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert (taken.accepted, taken.declined, waiting.number) == ([], [offer], 0)


async def test_call_without_a_receiver_gets_no_offer(waiting: WaitingCalls, queue: Queue) -> None:
    (call,) = await begun(waiting, queue, "one")
    assert waiting.offer({("", "mail")}, refuse) is None
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
