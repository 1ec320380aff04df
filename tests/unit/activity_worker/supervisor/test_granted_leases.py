"""Handover of the operator's leases to slots that are busy, polling or free."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest

from activity_worker.activity import TaskRequest, TaskResponseToolkit
from activity_worker.contract import ERROR_WORKER_STOPPED, Grant, LeasedTask, Reply, lease_id
from activity_worker.errors import InvalidTokenError, LeaseLostError, SourceError, UnreachableError
from activity_worker.runtime.slot_pool import SlotPool
from activity_worker.supervisor.claims import ClaimBook
from activity_worker.supervisor.granted_leases import GrantedLeases


class Source:
    """A source whose open polls the test completes."""

    name = "arn"

    def __init__(self) -> None:
        self.polls: list[asyncio.Future[LeasedTask | None]] = []
        self.calls: list[tuple[str, str]] = []
        self.refusals: dict[str, SourceError] = {}
        self.silent = self.away = False
        self.fails = asyncio.Event()
        self.fails.set()
        #: Until when the source refuses failures as one that cannot be reached, in the event loop's time.
        self.fails_after = 0.0

    async def lease(self, worker_name: str) -> LeasedTask | None:
        self.polls.append(asyncio.get_running_loop().create_future())
        return await self.polls[-1]

    async def heartbeat(self, token: str) -> None:
        self.calls.append(("heartbeat", token))
        if self.silent:
            await asyncio.Event().wait()
        if token in self.refusals:
            raise self.refusals[token]

    async def succeed(self, token: str, output: str) -> None:
        if self.away:
            raise UnreachableError("ConnectionRefused")
        self.calls.append(("succeed", token))

    async def fail(self, token: str, error: str, cause: str) -> None:
        await self.fails.wait()
        if asyncio.get_running_loop().time() < self.fails_after:
            raise UnreachableError("ConnectionRefused")
        self.calls.append((error, token))

    async def close(self) -> None:
        """Nothing to free."""


class WaitingSlot:
    """One slot whose handler waits for `go` (after a response if `answer_first`), and the operator's replies."""

    def __init__(self) -> None:
        self.source, self.book = Source(), ClaimBook()
        self.handled: list[str] = []
        self.answer_first: Literal["success", "failure"] | None = None
        self.go = asyncio.Event()
        self.pool = SlotPool(self.source, self._handle, name_prefix="pod")
        self.handover = GrantedLeases(self.pool, self.book, heartbeat_seconds=10.0, on_change=lambda: None)

    @property
    def reported(self) -> set[str]:
        """The leases that a report of this moment would contain."""
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
        """Let the slot run a task from its own poll."""
        self.pool.uncordon()
        await settle()
        self.source.polls[0].set_result(LeasedTask("own", "{}"))
        await settle()

    async def answer(self, asked: tuple[str, ...] = (), **parts: Any) -> None:
        self.handover.grant(self.book.answered(Reply(term=1, next_report_seconds=1.0, **parts), asked))
        await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def waiting() -> AsyncIterator[WaitingSlot]:
    waiting = WaitingSlot()
    waiting.pool.cordon()
    await waiting.pool.start()
    yield waiting
    waiting.go.set()
    waiting.source.fails.set()
    for poll in waiting.source.polls:
        if not poll.done():
            poll.set_result(None)
    await waiting.pool.stop(timeout_seconds=0.0, abort_polls=True)
    await waiting.handover.close()


async def test_offer_before_the_first_poll_reserves_the_slot_and_runs_in_it(waiting: WaitingSlot) -> None:
    await waiting.answer(offers=("a",))
    waiting.pool.uncordon()
    await settle()
    assert (list(waiting.book.claims), waiting.source.polls) == (["a"], [])

    await waiting.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    assert waiting.handled == ["token-a"]
    assert ("heartbeat", "token-a") in waiting.source.calls


async def test_refused_claim_lets_the_slot_poll(waiting: WaitingSlot) -> None:
    await waiting.answer(offers=("a",))
    waiting.pool.uncordon()
    await waiting.answer(asked=("a",), refused=("a",))

    assert (len(waiting.source.polls), waiting.handover.settled) == (1, True)


async def test_slot_with_an_open_poll_claims_nothing_until_the_poll_ends(waiting: WaitingSlot) -> None:
    waiting.pool.uncordon()
    await settle()
    await waiting.answer(offers=("a",))
    assert waiting.book.claims == {}

    waiting.source.polls[0].set_result(None)
    await settle()
    assert (list(waiting.book.claims), len(waiting.source.polls)) == (["a"], 1)


async def test_slot_that_ends_its_task_claims_before_it_polls_again(waiting: WaitingSlot) -> None:
    await waiting.occupy()
    await waiting.answer(offers=("a",))
    waiting.go.set()
    await settle()

    assert ("succeed", "own") in waiting.source.calls
    assert (list(waiting.book.claims), len(waiting.source.polls)) == (["a"], 1)


async def test_late_grant_gets_heartbeats_until_the_slot_is_free(waiting: WaitingSlot) -> None:
    await waiting.occupy()
    await waiting.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    assert [lease.id for lease in waiting.handover.held(0.0)] == ["a"]
    assert ("heartbeat", "token-a") in waiting.source.calls

    waiting.go.set()
    await settle()
    assert waiting.handled == ["own", "token-a"]
    assert waiting.handover.held(0.0) == ()


async def test_grant_is_reported_at_every_moment_until_its_slot_runs_it(waiting: WaitingSlot) -> None:
    """A report without the lease would mean to the operator that its task is over."""
    lease = lease_id("token-a")
    waiting.handover.grant([Grant(lease, "token-a", "{}")])
    for _ in range(20):
        assert (waiting.reported, waiting.handover.settled) == ({lease}, not waiting.handover.held(0.0))
        await asyncio.sleep(0)
    assert waiting.handled == ["token-a"]
    assert waiting.handover.held(0.0) == ()


async def test_unanswered_heartbeat_of_a_waiting_lease_is_retried(waiting: WaitingSlot) -> None:
    await waiting.occupy()
    waiting.source.silent = True
    await waiting.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    await asyncio.sleep(9.0)
    waiting.source.silent = False
    await asyncio.sleep(2.0)

    assert waiting.source.calls.count(("heartbeat", "token-a")) == 2


async def test_lease_of_the_operator_is_released_when_its_task_is_done(waiting: WaitingSlot) -> None:
    lease = lease_id("token-a")
    await waiting.answer(asked=(lease,), granted=(Grant(lease, "token-a", "{}"),))
    waiting.go.set()
    await settle()

    assert waiting.book.released == {lease}


@pytest.mark.parametrize("answer", ["success", "failure"])
async def test_concluded_task_is_released_while_its_handler_still_cleans_up(
    waiting: WaitingSlot, answer: Literal["success", "failure"]
) -> None:
    """A report with the lease neither as running nor as released would mean a lost lease to the operator."""
    lease = lease_id("token-a")
    waiting.answer_first = answer
    await waiting.answer(asked=(lease,), granted=(Grant(lease, "token-a", "{}"),))

    assert waiting.pool.snapshot(0.0).busy == 1
    assert waiting.reported == {lease}


async def test_acknowledged_release_is_not_repeated_after_the_handler_ends(waiting: WaitingSlot) -> None:
    lease = lease_id("token-a")
    waiting.answer_first = "success"
    await waiting.answer(asked=(lease,), granted=(Grant(lease, "token-a", "{}"),))
    assert waiting.book.released == {lease}
    await waiting.answer(released=(lease,))
    waiting.go.set()
    await settle()

    assert (waiting.pool.snapshot(0.0).busy, waiting.book.released) == (0, set())


async def test_lease_lost_while_waiting_is_released_without_a_start(waiting: WaitingSlot) -> None:
    await waiting.occupy()
    waiting.source.refusals["token-a"] = LeaseLostError("TaskTimedOut")
    await waiting.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))

    assert (waiting.handover.held(0.0), waiting.book.released) == ((), {"a"})
    assert waiting.handover.settled
    waiting.go.set()
    await settle()
    assert waiting.handled == ["own"]


async def test_waiting_lease_with_a_refused_token_is_still_run(waiting: WaitingSlot) -> None:
    """Some emulators refuse heartbeats of a task without HeartbeatSeconds."""
    await waiting.occupy()
    waiting.source.refusals["token-a"] = InvalidTokenError("InvalidToken")
    await waiting.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    waiting.go.set()
    await settle()

    assert waiting.handled == ["own", "token-a"]


async def test_cordoned_worker_runs_its_claims_without_claiming_more(waiting: WaitingSlot) -> None:
    await waiting.answer(offers=("a",))
    waiting.handover.cordon()
    assert not waiting.pool.drained

    await waiting.answer(asked=("a",), offers=("b",), granted=(Grant("a", "token-a", "{}"),))
    waiting.go.set()
    await settle()

    assert (waiting.handled, waiting.book.claims, waiting.source.polls) == (["token-a"], {}, [])
    assert waiting.pool.drained


async def test_leaving_worker_waits_for_the_answer_to_its_claim(waiting: WaitingSlot) -> None:
    """The leader may be killed after it wrote the claim; the next one grants it 15 s later."""
    await waiting.answer(offers=("a",))
    waiting.handover.cordon()
    waiting.book.claims = dict.fromkeys(waiting.book.claims, asyncio.get_running_loop().time() - 15.0)
    await waiting.answer(asked=())
    assert not waiting.handover.settled

    await waiting.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    assert waiting.handled == ["token-a"]
    assert waiting.handover.settled


async def test_grant_without_a_slot_is_failed_as_worker_stopped(waiting: WaitingSlot) -> None:
    """The failure lets the state machine retry the task."""
    await waiting.pool.stop()
    await waiting.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    await waiting.handover.close()

    assert (ERROR_WORKER_STOPPED, "token-a") in waiting.source.calls
    assert waiting.book.released == {"a"}


async def test_failure_of_a_grant_is_tried_again_while_the_stop_lasts(waiting: WaitingSlot) -> None:
    """One call that got no answer left the task to its time-out, although the worker had a minute left."""
    await waiting.pool.stop()
    await waiting.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"), Grant("b", "token-b", "{}")))
    waiting.source.fails_after = 30.0
    await waiting.handover.close(60.0)

    failed = [token for error, token in waiting.source.calls if error == ERROR_WORKER_STOPPED]
    assert sorted(failed) == ["token-a", "token-b"]
    assert waiting.source.calls.count(("heartbeat", "token-a")) > 2
    assert waiting.book.released == {"a", "b"}


@pytest.mark.parametrize("silent", [False, True])
async def test_close_ends_although_its_source_takes_no_failure(waiting: WaitingSlot, silent: bool) -> None:
    await waiting.pool.stop()
    await waiting.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    waiting.source.fails_after = 1000.0
    if silent:
        waiting.source.fails.clear()
    began = asyncio.get_running_loop().time()
    await waiting.handover.close(60.0)
    assert asyncio.get_running_loop().time() - began <= 60.0
    assert waiting.handover.held(0.0) == ()


async def test_stopped_worker_withdraws_its_claims(waiting: WaitingSlot) -> None:
    await waiting.answer(offers=("a",))
    await waiting.pool.stop()
    await waiting.handover.close()

    assert (waiting.book.claims, waiting.handover.settled) == ({}, True)


async def test_grant_that_arrives_while_others_are_failed_is_failed_too(waiting: WaitingSlot) -> None:
    await waiting.pool.stop()
    await waiting.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    waiting.source.fails.clear()
    closing = asyncio.create_task(waiting.handover.close())
    await settle()
    assert waiting.reported == {"a"}, "the lease is reported until its task is failed"
    await waiting.answer(asked=("b",), granted=(Grant("b", "token-b", "{}"),))
    waiting.source.fails.set()
    await closing

    assert [call for call in waiting.source.calls if call[0] != "heartbeat"] == [
        (ERROR_WORKER_STOPPED, "token-a"),
        (ERROR_WORKER_STOPPED, "token-b"),
    ]
    assert (waiting.handover.held(0.0), waiting.book.released) == ((), {"a", "b"})


async def test_grant_after_the_close_is_failed_by_a_second_close(waiting: WaitingSlot) -> None:
    await waiting.answer(offers=("a",))
    await waiting.pool.stop()
    await waiting.handover.close()
    await waiting.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))

    assert await waiting.handover.close()
    assert not await waiting.handover.close()
    assert (ERROR_WORKER_STOPPED, "token-a") in waiting.source.calls
    assert (waiting.handled, waiting.book.released) == ([], {"a"})


async def test_close_leaves_behind_a_granted_task_that_outlives_its_slot(waiting: WaitingSlot) -> None:
    """The answer of a service that is away is tried for an hour; the stop of a worker must end before."""
    waiting.source.away = True
    waiting.go.set()
    await waiting.answer(asked=("a",), granted=(Grant("a", "token-a", "{}"),))
    assert waiting.handled == ["token-a"]
    await waiting.pool.stop(timeout_seconds=0.0)
    stopped_at = asyncio.get_running_loop().time()
    async with asyncio.timeout(600.0):
        assert not await waiting.handover.close()
    assert asyncio.get_running_loop().time() < stopped_at + 1.0
