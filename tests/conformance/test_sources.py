"""One suite for every source: its promises to a worker, and a worker's promises on it."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress

import pytest

from activity_worker.activity import TaskRequest
from activity_worker.contract import LeasedTask
from activity_worker.errors import InvalidTokenError, LeaseLostError, SourceError
from activity_worker.runtime.options import TaskOptions
from activity_worker.runtime.slot import Slot
from activity_worker.sources.protocol import CancellableSource
from tests.conformance.emulators import MOTO
from tests.conformance.harnesses import HARNESSES, MemoryHarness, MotoHarness, Servers, SourceHarness, SwfHarness, kept
from tests.conformance.swf_services import SwfService
from tests.conformance.test_swf_services import DIFFERENCES
from tests.eventually import eventually


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """The servers of the harnesses that need one."""
    with ExitStack() as stack:
        yield Servers(stack)


#: Why moto gives one task to two polls now and then: nothing that a test could assert.
RACE = "its threads answer polls without a lock"
#: What moto does otherwise: the test, and its entry in swf_differences.toml, which asserts it, or the race.
NOT_ON_MOTO = {
    "test_concurrent_polls_get_different_tasks": RACE,
    "test_open_poll_gets_an_arriving_task": "an_open_poll_is_given_the_task_that_arrives",
    "test_second_conclusion_is_refused": "a_call_after_a_failure_is_refused",
    "test_requested_cancellation_ends_the_handler_and_its_task": "a_requested_cancellation_reaches_the_worker",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Ask each source each question, and moto those that it answers alike."""
    if "harness" in metafunc.fixturenames:
        with_moto = metafunc.function.__name__ not in NOT_ON_MOTO
        metafunc.parametrize("harness", [*HARNESSES, *([MOTO.name] if with_moto else [])], indirect=True)


@pytest.fixture
async def harness(request: pytest.FixtureRequest, servers: Servers) -> AsyncIterator[SourceHarness]:
    """Yield each source in turn, without any task."""
    if request.param == MOTO.name:
        async with SwfService(MOTO.name, request.getfixturevalue("moto_url")) as service:
            yield MotoHarness(service)
        return
    async with HARNESSES[str(request.param)](servers) as harness:
        yield harness


async def take(harness: SourceHarness) -> LeasedTask:
    task = await harness.source.lease("conformance")
    assert task is not None
    return task


def number(task: LeasedTask) -> int:
    return int(json.loads(task.input)["n"])


async def test_empty_poll_returns_nothing(harness: SourceHarness) -> None:
    assert await harness.source.lease("conformance") is None


async def test_open_poll_gets_an_arriving_task(harness: SourceHarness) -> None:
    polling = asyncio.create_task(take(harness))
    await asyncio.sleep(0)
    await harness.put(7)

    assert number(await polling) == 7


async def test_concurrent_polls_get_different_tasks(harness: SourceHarness) -> None:
    for n in range(4):
        await harness.put(n)

    tasks = await asyncio.gather(*(take(harness) for _ in range(4)))

    assert sorted(number(task) for task in tasks) == [0, 1, 2, 3]
    assert len({task.token for task in tasks}) == 4


async def test_task_is_leased_once(harness: SourceHarness) -> None:
    await harness.put(1)
    await take(harness)

    assert await harness.source.lease("conformance") is None


async def test_success_and_failure_reach_the_other_side(harness: SourceHarness) -> None:
    for n in (1, 2):
        await harness.put(n)
    first, second = await take(harness), await take(harness)

    await harness.source.heartbeat(first.token)
    await harness.source.succeed(first.token, '{"é": [1, null]}')
    await harness.source.fail(second.token, "Broken", "why")

    assert await harness.outcomes() == {
        1: kept(("succeeded", {"é": [1, None]}), harness),
        2: kept(("failed", "why"), harness),
    }


async def test_second_conclusion_is_refused(harness: SourceHarness) -> None:
    for first in ("succeed", "fail"):
        await harness.put(1)
        task = await take(harness)
        if first == "succeed":
            await harness.source.succeed(task.token, "{}")
        else:
            await harness.source.fail(task.token, "E", "m")

        for call in (harness.source.heartbeat(task.token), harness.source.succeed(task.token, '{"late": 1}')):
            with pytest.raises(LeaseLostError):
                await call
        with pytest.raises(LeaseLostError):
            await harness.source.fail(task.token, "E", "late")


async def test_conclusion_of_a_lost_lease_has_no_effect(harness: SourceHarness) -> None:
    await harness.put(1)
    task = await take(harness)
    await harness.take_away(task.token)

    with pytest.raises(LeaseLostError):
        await harness.source.heartbeat(task.token)
    with pytest.raises(LeaseLostError):
        await harness.source.succeed(task.token, "{}")
    with pytest.raises(LeaseLostError):
        await harness.source.fail(task.token, "E", "m")
    assert await harness.outcomes() == {}


async def test_unknown_token_is_refused(harness: SourceHarness) -> None:
    for call in (harness.source.heartbeat("nonsense"), harness.source.succeed("nonsense", "{}")):
        with pytest.raises((InvalidTokenError, LeaseLostError)):
            await call


async def test_token_and_input_are_not_shown(harness: SourceHarness) -> None:
    # More digits than an address in memory has, which `repr` may show.
    number = 31415926535897932384
    await harness.put(number)
    task = await take(harness)

    assert str(number) not in f"{task!r}{harness.source!r}"
    with pytest.raises(SourceError) as refused:
        await harness.source.succeed("nonsense-ruby-moon", '{"secret": "ruby-moon"}')
    assert "ruby-moon" not in str(refused.value)


async def test_worker_runs_tasks_and_reports_their_results(harness: SourceHarness) -> None:
    async def odd_ones_fail(request: TaskRequest) -> dict[str, int]:
        if request.input["n"] % 2:
            raise LookupError("an odd one")
        return {"half": request.input["n"] // 2}

    for n in range(6):
        await harness.put(n)
    worker = Slot(harness.source, odd_ones_fail)
    while await worker.run_once():
        pass

    found = await harness.outcomes()
    assert {n: outcome for n, outcome in found.items() if not n % 2} == {
        n: kept(("succeeded", {"half": n // 2}), harness) for n in (0, 2, 4)
    }
    for n in (1, 3, 5):
        result, cause = found[n]
        assert (result, cause and cause.splitlines()[0]) == kept(("failed", "an odd one"), harness)


async def test_lost_lease_cancels_the_handler_and_concludes_nothing(harness: SourceHarness) -> None:
    began: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    cancelled = asyncio.Event()

    async def patient(request: TaskRequest) -> None:
        began.set_result(request.task.token)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    await harness.put(1)
    worker = Slot(harness.source, patient, options=TaskOptions(heartbeat_seconds=0.05))
    running = asyncio.create_task(worker.run_once())
    await harness.take_away(await began)

    await asyncio.wait_for(cancelled.wait(), 10)
    await running
    assert await harness.outcomes() == {}


async def test_handler_beyond_its_deadline_fails_its_task(harness: SourceHarness) -> None:
    async def for_ever(request: TaskRequest) -> None:
        await asyncio.Event().wait()

    await harness.put(1)
    await Slot(harness.source, for_ever, options=TaskOptions(deadline_seconds=0.05)).run_once()

    assert (await harness.outcomes())[1][0] == "failed"


async def test_requested_cancellation_ends_the_handler_and_its_task(harness: SourceHarness) -> None:
    if not isinstance(harness, SwfHarness | MemoryHarness):
        assert not isinstance(harness.source, CancellableSource)
        return
    began: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def patient(request: TaskRequest) -> None:
        began.set_result(request.task.token)
        await asyncio.Event().wait()

    await harness.put(1)
    worker = Slot(harness.source, patient, options=TaskOptions(heartbeat_seconds=0.05))
    running = asyncio.create_task(worker.run_once())
    harness.request_cancel(await began)

    await asyncio.wait_for(running, 10)
    assert (await harness.outcomes())[1][0] == "cancelled"


async def test_worker_that_stops_loses_no_task_of_its_open_poll(harness: SourceHarness) -> None:
    async def quick(request: TaskRequest) -> dict[str, int]:
        return {"n": request.input["n"]}

    worker = Slot(harness.source, quick)
    await worker.start()
    await eventually("a poll is open", lambda: worker.poller.open)
    stopping = asyncio.create_task(worker.stop())
    await harness.put(1)
    await stopping

    # The poll brings the task, and it is run; or it has ended before, and the task waits.
    if not await harness.outcomes():
        assert number(await take(harness)) == 1


async def test_task_of_a_worker_that_died_is_neither_concluded_nor_given_twice(harness: SourceHarness) -> None:
    for n in (1, 2):
        await harness.put(n)
    abandoned = await take(harness)

    other = await take(harness)
    await harness.source.succeed(other.token, "{}")

    assert number(other) != number(abandoned)
    assert await harness.source.lease("conformance") is None
    assert list(await harness.outcomes()) == [number(other)]


async def test_source_goes_on_after_its_connections_were_cut(harness: SourceHarness) -> None:
    await harness.put(1)
    task = await take(harness)
    await harness.cut()
    with suppress(SourceError):
        await harness.source.heartbeat(task.token)

    await harness.source.heartbeat(task.token)
    await harness.source.succeed(task.token, '{"done": 1}')

    assert await harness.outcomes() == {1: kept(("succeeded", {"done": 1}), harness)}


def test_tests_that_moto_is_spared_have_a_listed_difference() -> None:
    assert set(NOT_ON_MOTO.values()) - {RACE} <= set(DIFFERENCES[MOTO.name])
