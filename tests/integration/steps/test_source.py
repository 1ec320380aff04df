"""The task store as a worker's source: leases, heartbeats, returned instances, and errors."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from activity_worker.config.sources import TaskStoreSettings
from activity_worker.contract import LeasedTask as Leased
from activity_worker.errors import (
    CapabilitiesError,
    DeniedError,
    LeaseLostError,
    MissingError,
    SourceError,
    UnreachableError,
)
from activity_worker.sources.protocol import SharedSource
from activity_worker.sources.taskstore import HOLD_SECONDS, TaskStoreSource
from activity_worker.steps import RunnerOptions, Task, Tasks, TaskStore
from activity_worker.steps.model.child_protocol import InstanceClaim, capabilities_of
from activity_worker.steps.runner import tasks as app
from activity_worker.steps.store.notifier import Notifier, announcements
from tests.clock import Clock
from tests.servers.ports import free_port
from tests.servers.postgres import new_database, wait_for_listeners

LEASE = 30.0


@pytest.fixture
def tasks(clock: Clock) -> Tasks:
    return Tasks([Task("t", ["m", "n"], methods={"m": lambda _: None, "n": lambda _: None})], clock=clock)


@pytest.fixture
async def source(url: str, clock: Clock, tasks: Tasks) -> AsyncIterator[TaskStoreSource]:
    made = TaskStoreSource(TaskStoreSettings(url, LEASE), hold_seconds=0.05, clock=clock)
    made.set_capabilities(capabilities_of(tasks.methods))
    yield made
    await made.close()


@pytest.fixture
def cordoned_by_the_claim(source: TaskStoreSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cordon the source at the moment at which the store has given it an instance."""
    claim = TaskStore.claim

    async def cordoned_meanwhile(*arguments: Any, **more: Any) -> Any:
        taken = await claim(*arguments, **more)
        source.cordon(True)
        return taken

    monkeypatch.setattr(TaskStore, "claim", cordoned_meanwhile)


async def leased(source: TaskStoreSource, name: str = "pod:a") -> Leased:
    task = await source.lease(name)
    assert task is not None
    return task


def claim_of(task: Leased) -> InstanceClaim:
    return InstanceClaim.from_input(json.loads(task.input))


async def run(store: TaskStore, tasks: Tasks, task: Leased) -> None:
    """Do the work of a handler process with a lease."""
    claim = claim_of(task)
    runner = tasks.runner(store, RunnerOptions(claim.runner, renews=False))
    await runner.go_on(await store.get(claim.instance_id))


def test_source_can_be_shared_by_handler_processes() -> None:
    source = TaskStoreSource(TaskStoreSettings("postgresql://tasks:secret@db/tasks", LEASE))

    assert isinstance(source, SharedSource)
    assert (source.max_heartbeat_seconds, source.name) == (10.0, "task-store")
    assert "secret" not in repr(source.name)


async def test_lease_is_a_due_instance_that_is_saved_as_running(
    source: TaskStoreSource, store: TaskStore, tasks: Tasks
) -> None:
    name = await tasks.new(store, "t", {"card": "ruby-moon"})
    task = await leased(source)

    held = await store.get(name)
    assert held.instance.status.running
    assert held.instance.next_run_time == 1000.0 + LEASE
    assert claim_of(task) == InstanceClaim(name, held.runner, held.revision, LEASE)
    assert held.runner.startswith("pod:a-")
    assert "ruby-moon" not in task.token + task.input
    assert await source.lease("pod:b") is None


async def test_each_claim_has_its_own_name(
    source: TaskStoreSource, store: TaskStore, tasks: Tasks, clock: Clock
) -> None:
    await tasks.new(store, "t")
    first = await leased(source)
    clock.now += LEASE
    second = await leased(source)

    assert claim_of(first).runner != claim_of(second).runner
    with pytest.raises(LeaseLostError):
        await source.heartbeat(first.token)
    with pytest.raises(LeaseLostError):
        await source.fail(first.token, "ActivityPool.HandlerExited", "")
    await source.heartbeat(second.token)


async def test_heartbeat_renews_the_lease_at_any_call(
    source: TaskStoreSource, store: TaskStore, tasks: Tasks, clock: Clock
) -> None:
    name = await tasks.new(store, "t")
    task = await leased(source)
    held = await store.get(name)
    clock.now += LEASE / 2
    await source.heartbeat(task.token)
    assert (await store.get(name)).instance.next_run_time == clock.now + LEASE
    assert (await store.get(name)).revision == held.revision

    clock.now += LEASE - 1
    assert await source.lease("pod:b") is None


async def test_heartbeat_does_not_change_an_instance_without_a_call(
    source: TaskStoreSource, store: TaskStore, clock: Clock
) -> None:
    async def m(_: dict[str, Any]) -> None:
        raise RuntimeError("again")

    tasks = Tasks([Task("r", [{"method": "m", "retry": {"delays": [300]}}], methods={"m": m})], clock=clock)
    source.set_capabilities(capabilities_of(tasks.methods))
    name = await tasks.new(store, "r")
    task = await leased(source)
    await run(store, tasks, task)
    await source.heartbeat(task.token)
    await source.fail(task.token, "x", "")
    assert (await store.get(name)).instance.next_run_time == clock.now + 300


async def test_instance_of_a_dead_process_is_due_after_growing_delays(
    source: TaskStoreSource, store: TaskStore, tasks: Tasks, clock: Clock
) -> None:
    name = await tasks.new(store, "t")
    pauses = []
    for _ in range(9):
        task = await leased(source)
        await source.fail(task.token, "ActivityPool.HandlerExited", "killed")
        due = (await store.get(name)).instance.next_run_time
        assert due is not None
        pauses.append(due - clock.now)
        assert await source.lease("pod:b") is None
        clock.now = due
    assert pauses == [1, 2, 4, 8, 16, LEASE, LEASE, LEASE, LEASE]

    assert await source.lease("pod:a") is None
    ended = (await store.get(name)).instance
    assert (ended.complete, ended.status.failures[0].error.code) == (True, "RunnerLost")


async def test_giving_back_never_prolongs_a_lease(
    source: TaskStoreSource, store: TaskStore, tasks: Tasks, clock: Clock
) -> None:
    name = await tasks.new(store, "t")
    task = await leased(source)
    clock.now += LEASE - 0.5
    await source.fail(task.token, "x", "")

    assert (await store.get(name)).instance.next_run_time == 1000.0 + LEASE


async def test_late_heartbeat_does_not_renew_a_lease_that_was_given_back(
    source: TaskStoreSource, store: TaskStore, tasks: Tasks, clock: Clock
) -> None:
    """A worker sends heartbeats until the store has answered, so one may arrive after the lease was given back."""
    name = await tasks.new(store, "t")
    task = await leased(source)
    await source.fail(task.token, "ActivityPool.WorkerStopped", "")
    await source.heartbeat(task.token)
    assert (await store.get(name)).instance.next_run_time == clock.now + 1

    clock.now += 1
    again = await leased(source, "pod:b")
    clock.now += LEASE / 2
    await source.heartbeat(again.token)
    assert (await store.get(name)).instance.next_run_time == clock.now + LEASE


async def test_outcome_recorded_after_the_return_of_its_lease_counts(
    source: TaskStoreSource, store: TaskStore, tasks: Tasks
) -> None:
    """The process that was to be killed may end its call at the last moment."""
    name = await tasks.new(store, "t")
    task = await leased(source)
    await source.fail(task.token, "ActivityPool.WorkerStopped", "")
    await run(store, tasks, task)
    ended = await store.get(name)
    assert ended.instance.success
    assert ended.instance.status.tries == {}


async def test_version_with_unknown_methods_is_left_and_a_known_one_taken(
    source: TaskStoreSource, store: TaskStore, clock: Clock
) -> None:
    methods = {name: lambda _: None for name in "mnx"}
    lacking = Tasks([Task("t", ["m", "x"], methods=methods)], clock=clock)
    reordered = Tasks([Task("t", ["n", "m"], methods=methods)], clock=clock)
    await lacking.new(store, "t")
    assert await source.lease("pod:a") is None

    # Another program created it, after this worker had read the versions.
    name = await reordered.new(store, "t")
    assert await source.lease("pod:a") is None
    clock.now += 10.0
    assert claim_of(await leased(source)).instance_id == name
    assert await source.lease("pod:a") is None


async def test_modules_are_offered_by_their_callables(source: TaskStoreSource, store: TaskStore, clock: Clock) -> None:
    class Mail:
        ready = True

        def __init__(self) -> None:
            self.later = lambda _: None

        def send(self, _: dict[str, Any]) -> None: ...

        @property
        def boxes(self) -> Any:
            raise AssertionError("no property is asked")

        def __getattr__(self, name: str) -> Any:
            if name == "dynamic":
                return lambda _: None
            raise AttributeError(name)

    modules = {"mail": Mail(), "book": {"write": print, "size": 3, "_hidden": print}}
    offering = Tasks([Task("mails", ["module.mail.dynamic"])], modules=modules, clock=clock)
    capabilities = capabilities_of(offering.methods)
    assert capabilities["modules"] == {"mail": ["dynamic", "later", "send"], "book": ["write"]}

    source.set_capabilities(json.loads(json.dumps(capabilities)))
    other = Tasks([Task("mails", ["module.mail.send", "module.book.write"])], modules=modules, clock=clock)
    name = await other.new(store, "mails")
    assert claim_of(await leased(source)).instance_id == name


@pytest.mark.parametrize(
    "capabilities", [None, {}, {"tasks": [{"name": "t"}], "methods": {}, "modules": {}}, {"tasks": 3}]
)
def test_object_that_is_no_tasks_is_refused(capabilities: Any) -> None:
    with pytest.raises(CapabilitiesError):
        TaskStoreSource(TaskStoreSettings("sqlite://", LEASE)).set_capabilities(capabilities)


async def test_claim_concludes_a_canceled_instance_and_leases_the_next(
    source: TaskStoreSource, store: TaskStore, tasks: Tasks, clock: Clock
) -> None:
    canceled, other = await tasks.new(store, "t"), await tasks.new(store, "t", at=1001.0)
    await leased(source)
    await app.cancel(store, canceled, now=clock.now)
    clock.now += LEASE

    assert claim_of(await leased(source)).instance_id in {canceled, other}


async def test_poll_gets_a_new_instance_at_once(
    server: str, clock: Clock, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the announcement, the poll would find it only at its end.
    monkeypatch.setattr("activity_worker.sources.taskstore.POLL_SECONDS", {"postgresql": 2 * HOLD_SECONDS})
    url = await new_database(server)
    source = TaskStoreSource(TaskStoreSettings(url, LEASE), clock=clock)
    source.set_capabilities(capabilities_of(tasks.methods))
    polling = asyncio.create_task(source.lease("pod:a"))
    store = await TaskStore.open(url)
    await wait_for_listeners(store.engine, 1)
    began = time.monotonic()
    await tasks.new(store, "t")
    assert await polling is not None
    assert time.monotonic() - began < HOLD_SECONDS / 2
    await store.close()
    await source.close()


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_returned_instance_is_announced(source: TaskStoreSource, store: TaskStore, tasks: Tasks) -> None:
    notifier = Notifier()
    async with announcements(store.engine, notifier):
        await tasks.new(store, "t")
        await notifier.wait(1, 5.0)
        task, heard = await leased(source), notifier.notifications
        await source.fail(task.token, "ActivityPool.HandlerExited", "")
        async with asyncio.timeout(5):
            while notifier.notifications == heard:
                await notifier.wait(heard, 5.0)


async def test_cordon_ends_open_polls_and_later_ones(url: str, tasks: Tasks) -> None:
    source = TaskStoreSource(TaskStoreSettings(url, LEASE))
    source.set_capabilities(capabilities_of(tasks.methods))
    polls = [asyncio.create_task(source.lease(f"pod:{slot}")) for slot in "ab"]
    done, _ = await asyncio.wait(polls, timeout=0.3)
    assert not done
    source.cordon(True)
    assert await asyncio.wait_for(asyncio.gather(*polls), 5) == [None, None]
    assert await source.lease("pod:a") is None
    await source.close()


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (("/postgres", "/nowhere"), MissingError, 'database "nowhere" does not exist'),
        (("//test@", "//nobody:hunter2@"), DeniedError, 'role "nobody" does not exist'),
    ],
)
async def test_errors_are_classified_by_their_fix(
    server: str, tasks: Tasks, change: tuple[str, str], kind: type[SourceError], words: str
) -> None:
    source = TaskStoreSource(TaskStoreSettings(server.replace(*change), LEASE))
    source.set_capabilities(capabilities_of(tasks.methods))

    with pytest.raises(kind) as caught:
        await source.lease("pod:a")
    assert words in caught.value.message
    assert "hunter2" not in str(caught.value)
    await source.close()


async def test_store_that_is_down_is_unreachable_and_used_once_it_is_up(tasks: Tasks) -> None:
    source = TaskStoreSource(TaskStoreSettings(f"postgresql://u:hunter2@127.0.0.1:{free_port()}/x", LEASE))
    source.set_capabilities(capabilities_of(tasks.methods))
    for call in (source.lease("pod:a"), source.heartbeat('["a", "b"]'), source.fail('["a", "b"]', "x", "")):
        with pytest.raises(UnreachableError) as caught:
            await call
        assert "hunter2" not in str(caught.value)
    await source.close()


async def test_unreadable_url_is_not_repeated(tasks: Tasks) -> None:
    source = TaskStoreSource(TaskStoreSettings("hunter2 is no url", LEASE))
    source.set_capabilities(capabilities_of(tasks.methods))
    with pytest.raises(SourceError, match="StoreUrl") as caught:
        await source.lease("pod:a")
    assert "hunter2" not in str(caught.value)


async def test_instance_taken_during_a_cordon_is_given_back(
    source: TaskStoreSource, store: TaskStore, tasks: Tasks, cordoned_by_the_claim: None
) -> None:
    name = await tasks.new(store, "t")
    assert await source.lease("pod:a") is None

    left = (await store.get(name)).instance
    assert (left.status.running, left.status.tries, left.next_run_time) == (False, {}, 1000.0)


async def test_instance_that_cannot_be_left_during_a_cordon_becomes_a_task(
    source: TaskStoreSource,
    store: TaskStore,
    tasks: Tasks,
    cordoned_by_the_claim: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task is given back, and tried again for that, where a poll that fails leaves the instance to its lease."""

    async def away(*_: Any) -> Any:
        raise OperationalError("UPDATE", {}, ConnectionResetError())

    monkeypatch.setattr(TaskStore, "record", away)
    name = await tasks.new(store, "t")
    task = await leased(source)
    await source.fail(task.token, "ActivityPool.WorkerStopped", "")
    assert (await store.get(name)).instance.next_run_time == 1001.0
