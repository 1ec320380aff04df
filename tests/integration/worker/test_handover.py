# ruff: noqa: D103 - the names are the sentences
"""Leases that the operator hands over, and slots that poll for themselves."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from activity_worker.claims import ClaimBook
from activity_worker.contract import ERROR_WORKER_STOPPED, Grant, Reply, lease_id
from activity_worker.errors import LeaseLostError
from activity_worker.handover import HandoverSource
from activity_worker.ledger import Ledger
from activity_worker.metrics import WorkerMetrics
from activity_worker.sources.protocol import Task


class Inner:
    """A source that remembers; its polls wait for `tasks`."""

    name = "arn"

    def __init__(self) -> None:
        self.tasks: asyncio.Queue[Task | None] = asyncio.Queue()
        self.said: list[tuple[str, ...]] = []
        self.polling = asyncio.Event()
        self.lost = False

    async def lease(self, worker_name: str) -> Task | None:
        self.polling.set()
        return await self.tasks.get()

    async def heartbeat(self, token: str) -> None:
        self.said.append(("heartbeat", token))
        if self.lost:
            raise LeaseLostError("TaskTimedOut")

    async def succeed(self, token: str, output: str) -> None:
        self.said.append(("succeed", token, output))

    async def fail(self, token: str, error: str, cause: str) -> None:
        self.said.append(("fail", token, error))

    async def close(self) -> None:
        self.said.append(("close",))


class Bench:
    """A handover source with everything around it."""

    def __init__(self) -> None:
        self.inner, self.book = Inner(), ClaimBook()
        self.ledger = Ledger(asyncio.get_running_loop().time())
        self.source = HandoverSource(
            self.inner,
            claims=self.book,
            ledger=self.ledger,
            metrics=WorkerMetrics("test", 2),
            task_heartbeat_seconds=10.0,
        )
        self.asked: list[asyncio.Task[Task | None]] = []

    async def ask(self, worker: str) -> asyncio.Task[Task | None]:
        """Let a slot ask for a task, until it waits for something."""
        asked = asyncio.create_task(self.source.lease(worker))
        self.asked.append(asked)
        await settle()
        return asked

    def answer(self, asked: tuple[str, ...] = (), **parts: object) -> None:
        """Take a reply as the supervisor does."""
        grants = self.book.answered(Reply(term=1, next_report_seconds=1.0, **parts), asked)  # type: ignore[arg-type]
        self.source.grant(grants)
        self.source.allow_polls()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    for asked in bench.asked:
        asked.cancel()
    await asyncio.gather(*bench.asked, return_exceptions=True)
    await bench.source.close()


async def test_nobody_polls_before_the_operator_has_answered(bench: Bench) -> None:
    await bench.ask("one")
    assert (bench.source.waiting, bench.inner.polling.is_set()) == (1, False)

    bench.answer()
    await settle()
    assert (bench.source.waiting, bench.source.open_polls) == (0, 1)


async def test_an_offered_lease_keeps_one_slot_from_polling_and_runs_there_when_granted(bench: Bench) -> None:
    first, second = await bench.ask("one"), await bench.ask("two")
    bench.answer(offers=("a",))
    await settle()
    assert (list(bench.book.claims), bench.source.waiting, bench.source.open_polls) == (["a"], 1, 1)

    bench.answer(asked=("a",), granted=(Grant("a", "token-a", '{"n": 1}'),))
    done, _ = await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [Task("token-a", '{"n": 1}')]


async def test_a_granted_lease_is_heartbeated_from_the_grant_on(bench: Bench) -> None:
    bench.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    await settle()

    assert bench.inner.said == [("heartbeat", "token-a")]


async def test_a_refused_claim_lets_the_slot_poll(bench: Bench) -> None:
    await bench.ask("one")
    bench.answer(offers=("a",))
    await settle()
    bench.answer(asked=("a",), refused=("a",))
    await settle()

    assert (bench.source.waiting, bench.source.open_polls) == (0, 1)


async def test_a_cordoned_worker_opens_no_poll_but_runs_what_it_had_claimed(bench: Bench) -> None:
    one = await bench.ask("one")
    bench.answer(offers=("a",))
    await settle()
    bench.source.shut()
    await settle()
    assert not one.done()

    bench.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    assert await one == Task("token-a", "{}")
    assert await bench.source.lease("one") is None
    assert not bench.inner.polling.is_set()


async def test_an_open_poll_is_awaited_when_the_worker_is_cordoned(bench: Bench) -> None:
    bench.answer()
    one = await bench.ask("one")
    bench.source.shut()
    await settle()
    assert not one.done()

    bench.inner.tasks.put_nowait(Task("late", "{}"))
    assert await one == Task("late", "{}")


async def test_a_concluded_lease_of_the_operator_is_released_and_one_of_our_own_is_not(bench: Bench) -> None:
    handed = lease_id("token-a")
    bench.answer(asked=(handed,), granted=(Grant(handed, "token-a", "{}"),))
    await bench.source.lease("one")
    bench.inner.tasks.put_nowait(Task("own", "{}"))
    await bench.source.lease("two")
    await bench.source.succeed("token-a", "1")
    await bench.source.succeed("own", "2")

    assert bench.book.released == {handed}
    assert bench.ledger.held(0.0) == ()


async def test_a_lost_lease_is_not_held_any_more(bench: Bench) -> None:
    bench.answer()
    bench.inner.tasks.put_nowait(Task("own", "{}"))
    await bench.source.lease("one")
    bench.inner.lost = True
    with pytest.raises(LeaseLostError):
        await bench.source.heartbeat("own")

    assert bench.ledger.held(0.0) == ()
    assert bench.ledger.busy == 1
    bench.source.done("own")
    assert bench.ledger.busy == 0


async def test_a_grant_that_no_slot_took_is_failed_for_the_state_machine_to_retry(bench: Bench) -> None:
    bench.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    await bench.source.close()

    assert ("fail", "token-a", ERROR_WORKER_STOPPED) in bench.inner.said
