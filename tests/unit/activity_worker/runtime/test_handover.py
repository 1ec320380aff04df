"""Leases that the operator hands over to a pool whose slots are busy, polling, or free."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest

from activity_worker.activity import TaskRequest, TaskResponseToolkit
from activity_worker.claims import ClaimBook
from activity_worker.contract import ERROR_WORKER_STOPPED, Grant, Reply, lease_id
from activity_worker.errors import InvalidTokenError, LeaseLostError, SourceError
from activity_worker.handover import Handover
from activity_worker.pool import PoolManager
from activity_worker.sources.protocol import Task


class Source:
    """A source whose polls end when the test says so."""

    name = "arn"

    def __init__(self) -> None:
        self.polls: list[asyncio.Future[Task | None]] = []
        self.said: list[tuple[str, str]] = []
        self.refusals: dict[str, SourceError] = {}
        self.silent = False
        self.fails = asyncio.Event()
        self.fails.set()

    async def lease(self, worker_name: str) -> Task | None:
        self.polls.append(asyncio.get_running_loop().create_future())
        return await self.polls[-1]

    async def heartbeat(self, token: str) -> None:
        self.said.append(("heartbeat", token))
        if self.silent:
            await asyncio.Event().wait()
        if token in self.refusals:
            raise self.refusals[token]

    async def succeed(self, token: str, output: str) -> None:
        self.said.append(("succeed", token))

    async def fail(self, token: str, error: str, cause: str) -> None:
        await self.fails.wait()
        self.said.append((error, token))

    async def close(self) -> None:
        """Nothing to free."""


class Bench:
    """One slot, its handler held by the test, which may have it `answer_first`, and the operator's replies."""

    def __init__(self) -> None:
        self.source, self.book = Source(), ClaimBook()
        self.handled: list[str] = []
        self.answer_first: Literal["success", "failure"] | None = None
        self.go = asyncio.Event()
        self.pool = PoolManager(self.source, self._handle, worker_prefix="pod")
        self.handover = Handover(self.pool, self.book, heartbeat_seconds=10.0, on_change=lambda: None)

    @property
    def told(self) -> set[str]:
        """The leases that a report of this moment would account for."""
        running = self.pool.snapshot(0.0).leases
        return {lease.id for lease in (*running, *self.handover.held(0.0))} | self.book.released

    async def _handle(self, request: TaskRequest, respond: TaskResponseToolkit) -> None:
        self.handled.append(request.task.token)
        if self.answer_first is not None:
            await getattr(respond, self.answer_first)()
        await self.go.wait()
        if self.answer_first is None:
            await respond.success()

    async def occupy(self) -> None:
        """Have the slot run a task that its own poll brings."""
        self.pool.uncordon()
        await settle()
        self.source.polls[0].set_result(Task("own", "{}"))
        await settle()

    async def answer(self, asked: tuple[str, ...] = (), **parts: Any) -> None:
        self.handover.grant(self.book.answered(Reply(term=1, next_report_seconds=1.0, **parts), asked))
        await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    bench.pool.cordon()
    await bench.pool.start()
    yield bench
    bench.go.set()
    bench.source.fails.set()
    for poll in bench.source.polls:
        if not poll.done():
            poll.set_result(None)
    await bench.pool.stop(timeout_seconds=0.0, abort_polls=True)
    await bench.handover.close()


async def test_before_the_first_poll_an_offer_reserves_the_slot_and_runs_there(bench: Bench) -> None:
    await bench.answer(offers=("a",))
    bench.pool.uncordon()
    await settle()
    assert (list(bench.book.claims), bench.source.polls) == (["a"], [])

    await bench.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    assert bench.handled == ["token-a"]
    assert ("heartbeat", "token-a") in bench.source.said


async def test_a_refused_claim_lets_the_slot_poll(bench: Bench) -> None:
    await bench.answer(offers=("a",))
    bench.pool.uncordon()
    await bench.answer(asked=("a",), refused=("a",))

    assert (len(bench.source.polls), bench.handover.settled) == (1, True)


async def test_a_slot_with_an_open_poll_claims_nothing_until_the_poll_ends(bench: Bench) -> None:
    bench.pool.uncordon()
    await settle()
    await bench.answer(offers=("a",))
    assert bench.book.claims == {}

    bench.source.polls[0].set_result(None)
    await settle()
    assert (list(bench.book.claims), len(bench.source.polls)) == (["a"], 1)


async def test_a_slot_that_ends_its_task_claims_before_it_polls_again(bench: Bench) -> None:
    await bench.occupy()
    await bench.answer(offers=("a",))
    bench.go.set()
    await settle()

    assert ("succeed", "own") in bench.source.said
    assert (list(bench.book.claims), len(bench.source.polls)) == (["a"], 1)


async def test_a_late_grant_is_held_and_heartbeated_until_the_slot_is_free(bench: Bench) -> None:
    await bench.occupy()
    await bench.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    assert [lease.id for lease in bench.handover.held(0.0)] == ["a"]
    assert ("heartbeat", "token-a") in bench.source.said

    bench.go.set()
    await settle()
    assert bench.handled == ["own", "token-a"]
    assert bench.handover.held(0.0) == ()


async def test_a_grant_is_told_of_at_every_moment_until_its_slot_has_it(bench: Bench) -> None:
    """A report that told of it nowhere would say, to the operator, that it is over."""
    lease = lease_id("token-a")
    bench.handover.grant([Grant(lease, "token-a", "{}")])
    for _ in range(20):
        assert (bench.told, bench.handover.settled) == ({lease}, not bench.handover.held(0.0))
        await asyncio.sleep(0)
    assert bench.handled == ["token-a"]
    assert bench.handover.held(0.0) == ()


async def test_a_service_that_answers_no_heartbeat_of_a_waiting_lease_is_asked_again(bench: Bench) -> None:
    await bench.occupy()
    bench.source.silent = True
    await bench.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    await asyncio.sleep(9.0)
    bench.source.silent = False
    await asyncio.sleep(2.0)

    assert bench.source.said.count(("heartbeat", "token-a")) == 2


async def test_a_task_that_was_handed_over_is_released_when_it_is_done(bench: Bench) -> None:
    lease = lease_id("token-a")
    await bench.answer(asked=(lease,), granted=(Grant(lease, "token-a", "{}"),))
    bench.go.set()
    await settle()

    assert bench.book.released == {lease}


@pytest.mark.parametrize("answer", ["success", "failure"])
async def test_an_answered_task_is_released_while_its_handler_still_cleans_up(
    bench: Bench, answer: Literal["success", "failure"]
) -> None:
    """A report in between would account for it neither as running nor as concluded: lost, as the operator sees it."""
    lease = lease_id("token-a")
    bench.answer_first = answer
    await bench.answer(asked=(lease,), granted=(Grant(lease, "token-a", "{}"),))

    assert bench.pool.snapshot(0.0).busy == 1
    assert bench.told == {lease}


async def test_a_release_that_was_heard_while_the_handler_cleaned_up_is_not_said_again(bench: Bench) -> None:
    lease = lease_id("token-a")
    bench.answer_first = "success"
    await bench.answer(asked=(lease,), granted=(Grant(lease, "token-a", "{}"),))
    assert bench.book.released == {lease}
    await bench.answer(released=(lease,))
    bench.go.set()
    await settle()

    assert (bench.pool.snapshot(0.0).busy, bench.book.released) == (0, set())


async def test_a_lease_that_is_lost_while_it_waits_is_released_and_never_started(bench: Bench) -> None:
    await bench.occupy()
    bench.source.refusals["token-a"] = LeaseLostError("TaskTimedOut")
    await bench.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))

    assert (bench.handover.held(0.0), bench.book.released) == ((), {"a"})
    assert bench.handover.settled
    bench.go.set()
    await settle()
    assert bench.handled == ["own"]


async def test_a_waiting_lease_whose_heartbeat_is_refused_for_another_reason_is_run(bench: Bench) -> None:
    """Some emulators do not know the token of a task without HeartbeatSeconds."""
    await bench.occupy()
    bench.source.refusals["token-a"] = InvalidTokenError("InvalidToken")
    await bench.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    bench.go.set()
    await settle()

    assert bench.handled == ["own", "token-a"]


async def test_a_cordoned_worker_claims_nothing_but_runs_what_it_had_claimed(bench: Bench) -> None:
    await bench.answer(offers=("a",))
    bench.handover.cordon()
    assert not bench.pool.drained

    await bench.answer(asked=("a",), offers=("b",), granted=(Grant("a", "token-a", "{}"),))
    bench.go.set()
    await settle()

    assert (bench.handled, bench.book.claims, bench.source.polls) == (["token-a"], {}, [])
    assert bench.pool.drained


async def test_a_worker_that_leaves_hears_first_what_became_of_its_claim(bench: Bench) -> None:
    """The leader wrote the claim and was killed; the next one grants it again fifteen seconds later."""
    await bench.answer(offers=("a",))
    bench.handover.cordon()
    bench.book.claims = dict.fromkeys(bench.book.claims, asyncio.get_running_loop().time() - 15.0)
    await bench.answer(asked=())
    assert not bench.handover.settled

    await bench.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    assert bench.handled == ["token-a"]
    assert bench.handover.settled


async def test_a_grant_that_no_slot_took_is_failed_for_the_state_machine_to_retry(bench: Bench) -> None:
    await bench.pool.stop()
    await bench.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    await bench.handover.close()

    assert (ERROR_WORKER_STOPPED, "token-a") in bench.source.said
    assert bench.book.released == {"a"}


async def test_a_worker_that_has_stopped_takes_back_what_it_claimed(bench: Bench) -> None:
    await bench.answer(offers=("a",))
    await bench.pool.stop()
    await bench.handover.close()

    assert (bench.book.claims, bench.handover.settled) == ({}, True)


async def test_a_grant_that_comes_while_others_are_failed_is_failed_too(bench: Bench) -> None:
    await bench.pool.stop()
    await bench.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    bench.source.fails.clear()
    closing = asyncio.create_task(bench.handover.close())
    await settle()
    assert bench.told == {"a"}, "until it has been failed it is held"
    await bench.answer(asked=("b",), granted=(Grant("b", "token-b", "{}"),))
    bench.source.fails.set()
    await closing

    assert [said for said in bench.source.said if said[0] != "heartbeat"] == [
        (ERROR_WORKER_STOPPED, "token-a"),
        (ERROR_WORKER_STOPPED, "token-b"),
    ]
    assert (bench.handover.held(0.0), bench.book.released) == ((), {"a", "b"})


async def test_what_was_granted_after_the_end_is_failed_when_it_is_closed_again(bench: Bench) -> None:
    await bench.answer(offers=("a",))
    await bench.pool.stop()
    await bench.handover.close()
    await bench.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))

    assert await bench.handover.close()
    assert not await bench.handover.close()
    assert (ERROR_WORKER_STOPPED, "token-a") in bench.source.said
    assert (bench.handled, bench.book.released) == ([], {"a"})
