"""A handler process runs an instance that its supervisor has claimed."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from activity_worker.activity import TaskRequest
from activity_worker.contract import LeasedTask as Leased
from activity_worker.errors import LeaseLostError, TaskFailed, UnreachableError
from activity_worker.steps import FinalError, RunnerOptions, Task, Tasks, TaskStore
from activity_worker.steps.model.child_protocol import InstanceClaim, parse_token
from activity_worker.steps.runner import runner as runner_module
from activity_worker.steps.runner.child_handler import InstanceHandler
from activity_worker.steps.store.notifier import Notifier, announcements

Note = Mapping[str, Any]


class Place:
    """A handler, its tasks, and the events that it reported."""

    def __init__(self, url: str, store: TaskStore) -> None:
        self.store = store
        self.task = Task("t", ["first", "second"])
        self.calls: list[str] = []
        self.notes: list[Note] = []
        self.task.methods.update(first=self._call("first"), second=self._call("second"))
        self.tasks = Tasks([self.task])
        self.handler = InstanceHandler(self.tasks, url, self.notes.append)
        self.handler.begin(stopping=False)

    def _call(self, name: str) -> Any:
        async def called(_: dict[str, Any]) -> None:
            self.calls.append(name)

        return called

    def give(self, name: str, method: Any) -> None:
        """Replace a method."""
        self.tasks.methods.own["t"][name] = method

    async def taken(self, runner: str = "pod:a-1") -> TaskRequest:
        """Create an instance and claim it like a supervisor."""
        await self.tasks.new(self.store, "t", {"card": "ruby-moon"})
        held = await self.tasks.runner(self.store, RunnerOptions(runner)).take(runner)
        assert held is not None
        claim = InstanceClaim(held.instance.id, runner, held.revision, 60.0)
        return TaskRequest(None, Leased(claim.token, claim.input), json.loads(claim.input))  # type: ignore[arg-type]


@pytest.fixture
async def place(url: str, store: TaskStore) -> AsyncIterator[Place]:
    made = Place(url, store)
    yield made
    await made.handler.close()


async def stored(place: Place, request: TaskRequest) -> Any:
    return (await place.store.get(parse_token(request.task.token)[0])).instance


async def test_claimed_instance_runs_to_its_end_and_reports_every_call(place: Place) -> None:
    request = await place.taken()
    await place.handler.handle(request)

    assert (await stored(place, request)).success
    assert place.calls == ["first", "second"]
    reported = [(note["task"], note["sub_step"], note["outcome"], note["completed"]) for note in place.notes]
    assert reported == [("t", "method", "returned", ""), ("t", "method", "returned", "succeeded")]
    assert "ruby-moon" not in repr(place.notes)


async def test_claim_that_another_runner_has_taken_over_makes_no_call(place: Place) -> None:
    request = await place.taken()
    this = await place.store.get(parse_token(request.task.token)[0])
    later = place.tasks.runner(place.store, RunnerOptions("pod:b-2", lease_seconds=60))
    later._clock = lambda: (this.instance.next_run_time or 0.0) + 1
    assert await later.take("pod:b-2") is not None

    with pytest.raises(LeaseLostError, match="taken by 'pod:b-2'"):
        await place.handler.handle(request)
    assert place.calls == []


async def test_draining_handler_leaves_the_instance_due_at_once(place: Place) -> None:
    place.handler.begin(stopping=True)
    request = await place.taken()
    await place.handler.handle(request)

    left = await stored(place, request)
    assert (left.status.running, left.status.tries, place.calls) == (False, {}, [])
    assert left.next_run_time <= place.tasks.now()


async def test_stopped_handler_makes_no_further_call(place: Place) -> None:
    async def first(_: dict[str, Any]) -> None:
        place.handler.stop()

    place.give("first", first)
    request = await place.taken()
    await place.handler.handle(request)

    left = await stored(place, request)
    assert (left.status.step_num, left.status.running, left.complete) == (1, False, False)
    assert left.next_run_time <= place.tasks.now()
    place.handler.begin(stopping=False)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_instance_that_is_left_is_announced(place: Place) -> None:
    notifier = Notifier()
    async with announcements(place.store.engine, notifier):
        request = await place.taken()
        await notifier.wait(1, 5.0)
        heard = notifier.notifications
        place.handler.begin(stopping=True)
        await place.handler.handle(request)
        async with asyncio.timeout(5):
            while notifier.notifications == heard:
                await notifier.wait(heard, 5.0)


async def test_cancelled_handler_waits_for_the_function_in_its_thread(place: Place) -> None:
    began, go = threading.Event(), threading.Event()

    def first(_: dict[str, Any]) -> None:
        began.set()
        go.wait(20)

    place.give("first", first)
    request = await place.taken()
    running = asyncio.create_task(place.handler.handle(request))
    await asyncio.to_thread(began.wait)
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=0.3)
    assert not done
    go.set()
    await asyncio.wait({running}, timeout=20)

    assert running.cancelled()
    assert (await stored(place, request)).status.running


async def test_failed_instance_fails_its_task_with_the_errors_code(place: Place) -> None:
    async def first(_: dict[str, Any]) -> None:
        raise FinalError("SoldOut", "card ruby-moon")

    place.give("first", first)
    request = await place.taken()
    with pytest.raises(TaskFailed) as caught:
        await place.handler.handle(request)

    assert (caught.value.error, "ruby-moon" in caught.value.cause) == ("SoldOut", False)


async def test_outcome_that_cannot_be_saved_is_reported_without_content(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def record(*_: Any) -> Any:
        raise OperationalError("UPDATE ...", {"data": "ruby-moon"}, Exception("ruby-moon"))

    monkeypatch.setattr(TaskStore, "record", record)
    monkeypatch.setattr(runner_module, "AGAIN_SECONDS", 100.0)
    request = await place.taken()
    with pytest.raises(UnreachableError) as caught:
        await place.handler.handle(request)

    assert "ruby-moon" not in str(caught.value)
    assert caught.value.__cause__ is None
