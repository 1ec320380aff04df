"""The contract of a task store, on both databases."""

import asyncio
from dataclasses import replace

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Delete, Table, delete, insert, select, text
from sqlalchemy.exc import ProgrammingError

from activity_worker.database import engine as database
from activity_worker.steps.model import transitions
from activity_worker.steps.model.definition import Definition
from activity_worker.steps.model.definition_parser import parse
from activity_worker.steps.model.instance import ErrorRecord, Instance, Outcome, Raised, Returned, create_instance
from activity_worker.steps.store import task_store as store_module
from activity_worker.steps.store.rows import ClaimedInstance, StoredInstance, status_record
from activity_worker.steps.store.task_store import InstanceLeaseLostError, TaskStore, UnknownInstanceError
from activity_worker.wire.taskstore import DEFINITIONS, HISTORY, INSTANCES, METADATA
from tests.integration.steps.due import count_due
from tests.servers.postgres import execute, new_database

NOW = 1000.0
LEASE = 60.0
DEFINITION = parse({"name": "order", "steps": ["a", "b"], "data": {"x": 1}})


async def put(store: TaskStore, at: float = NOW, definition: Definition = DEFINITION) -> str:
    await store.sync(definition, NOW)
    made = create_instance(definition, {}, now=at)
    assert await store.create(made, NOW)
    return made.id


def finish(value: object = None, now: float = NOW):  # type: ignore[no-untyped-def]
    return lambda definition, stored: transitions.ended(
        definition, stored.instance, Returned(value), now, LEASE, canceled=stored.cancel
    )


async def claim_if_due(
    store: TaskStore, runner: str = "r1", now: float = NOW, version: str = DEFINITION.id
) -> StoredInstance | None:
    taken = await store.claim(runner, lambda: now, [version], LEASE)
    return None if taken is None else taken.held


async def claim(store: TaskStore, runner: str = "r1", now: float = NOW) -> StoredInstance:
    held = await claim_if_due(store, runner, now)
    assert held is not None
    return held


async def test_longest_due_instance_is_taken_first_and_future_ones_wait(store: TaskStore) -> None:
    later, first = await put(store, NOW - 1), await put(store, NOW - 5)
    await put(store, NOW + 1)

    assert [(await claim(store)).instance.id for _ in range(2)] == [first, later]
    assert await claim_if_due(store) is None
    assert await store.next_due([DEFINITION.id]) == NOW + 1


async def test_claim_is_saved_as_running_with_the_end_of_its_lease(store: TaskStore) -> None:
    name = await put(store)
    held = await claim(store)
    seen = await store.get(name)

    assert seen == held
    assert (seen.instance.status.running, seen.instance.next_run_time, seen.runner) == (True, NOW + LEASE, "r1")


async def test_two_runners_never_take_the_same_instance(store: TaskStore) -> None:
    names = {await put(store) for _ in range(6)}
    held = await asyncio.gather(*(claim_if_due(store, f"r{n}") for n in range(8)))

    taken = [one.instance.id for one in held if one is not None]
    assert sorted(taken) == sorted(names)


async def test_locked_instance_does_not_block_the_claim_of_the_next(server: str) -> None:
    store = await TaskStore.open(await new_database(server))
    first, second = await put(store, NOW - 5), await put(store)
    async with store.engine.begin() as writing, asyncio.timeout(20):
        await writing.execute(select(INSTANCES.c.id).where(INSTANCES.c.id == first).with_for_update())
        assert (await claim(store)).instance.id == second

    assert (await claim(store)).instance.id == first
    await store.close()


async def test_next_call_begins_in_the_same_write(store: TaskStore) -> None:
    await put(store)
    held = await store.record(await claim(store), NOW, finish({"y": 2}))

    assert (held.instance.status.step_num, held.instance.status.running, held.revision) == (1, True, 3)
    done = await store.record(held, NOW, finish())
    assert (done.instance.complete, done.instance.success, done.instance.data) == (True, True, {"x": 1, "y": 2})


async def test_another_runner_takes_over_after_the_lease(store: TaskStore) -> None:
    await put(store)
    old = await claim(store)
    assert await claim_if_due(store, "r2", NOW + LEASE - 1) is None
    new = await claim(store, "r2", NOW + LEASE)

    with pytest.raises(InstanceLeaseLostError):
        await store.record(old, NOW + LEASE, finish())
    with pytest.raises(InstanceLeaseLostError):
        await store.renew(old, NOW + 500)
    assert (await store.record(new, NOW + LEASE, finish())).instance.status.step_num == 1


async def test_renewed_lease_is_not_taken_over(store: TaskStore) -> None:
    name = await put(store)
    held = await claim(store)
    await store.renew(held, NOW + 500)

    assert await claim_if_due(store, "r2", NOW + 499) is None
    assert [revision.number for revision in await store.history(name)] == [1, 2]


async def test_history_keeps_every_revision_and_changed_data(store: TaskStore) -> None:
    name = await put(store)
    held = await store.record(await claim(store), NOW + 1, finish({"y": 2}))
    await store.record(held, NOW + 2, finish())
    history = await store.history(name)

    assert [(one.number, one.at, one.runner) for one in history] == [
        (1, NOW, ""), (2, NOW, "r1"), (3, NOW + 1, "r1"), (4, NOW + 2, "r1"),
    ]  # fmt: skip
    assert [one.data for one in history] == [{"x": 1}, None, {"x": 1, "y": 2}, None]
    assert [one.status["step"] for one in history] == ["a", "a", "b", "b"]


async def test_id_is_created_once(store: TaskStore) -> None:
    await store.sync(DEFINITION, NOW)
    made = create_instance(DEFINITION, {"n": 1}, now=NOW, instance_id="mine")

    assert await store.create(made, NOW) is True
    assert await store.create(replace(made, data={"n": 2}), NOW) is False
    assert (await store.get("mine")).instance.data == {"x": 1, "n": 1}


async def test_instance_keeps_the_version_it_was_created_with(store: TaskStore) -> None:
    newer = parse({"name": "order", "steps": ["a", "c"]})
    old, new = await put(store), await put(store, definition=newer)

    assert {one.id for one in await store.versions(["order"])} == {DEFINITION.id, newer.id}
    assert (await claim(store)).instance.id == old
    assert await claim_if_due(store) is None
    held = await claim_if_due(store, version=newer.id)
    assert held is not None
    assert held.instance.id == new


async def test_paused_instance_stops_before_the_next_call(store: TaskStore) -> None:
    name = await put(store)
    held = await claim(store)
    await store.change(name, NOW, lambda _, stored: transitions.paused(stored.instance, paused=True))

    seen: list[bool] = []

    def ended(definition: Definition, stored: StoredInstance) -> Instance:
        seen.append(stored.instance.paused)
        return transitions.ended(definition, stored.instance, Returned(), NOW, LEASE, canceled=False)

    after = await store.record(held, NOW, ended)
    assert seen == [False, True]
    assert (after.instance.status.running, after.instance.status.step_num) == (False, 1)
    assert await claim_if_due(store, "r2", NOW + 999) is None

    await store.change(name, NOW, lambda _, stored: transitions.paused(stored.instance, paused=False))
    assert (await claim(store)).instance.id == name


async def test_runner_sees_a_cancel_when_its_call_ends(store: TaskStore) -> None:
    name = await put(store)
    held = await claim(store)
    asked = await store.change(
        name, NOW, lambda definition, stored: transitions.asked_to_cancel(definition, stored.instance, NOW), cancel=True
    )
    assert (asked.cancel, asked.revision) == (True, held.revision)

    after = await store.record(held, NOW, finish())
    assert (after.instance.complete, after.instance.success, after.cancel) == (True, False, False)


async def test_due_instances_are_counted_also_by_task(store: TaskStore) -> None:
    await put(store)
    await put(store, NOW + 10)
    await put(store, definition=parse({"name": "other", "steps": ["a"]}))

    async with store.engine.connect() as connection:
        counts = [
            (await connection.execute(count_due(now, tasks))).scalar_one()
            for now, tasks in [(NOW, ()), (NOW + 10, ()), (NOW + 10, ("order",))]
        ]
    assert counts == [2, 3, 2]


async def test_unknown_instance_is_reported(store: TaskStore) -> None:
    with pytest.raises(UnknownInstanceError, match="there is no task instance 'gone'"):
        await store.get("gone")
    with pytest.raises(UnknownInstanceError):
        await store.change("gone", NOW, lambda _, stored: stored.instance)


async def test_reopened_store_has_all_instances(url: str) -> None:
    first = await TaskStore.open(url)
    name = await put(first)
    await first.close()
    second = await TaskStore.open(url)

    assert (await second.get(name)).instance.data == {"x": 1}
    assert (await claim(second)).instance.id == name
    await second.close()
    await second.close()  # closing twice does no harm


async def test_refused_open_leaves_no_connection(server: str) -> None:
    await execute(server, "CREATE USER refused")
    engines = []
    for _ in range(3):
        with pytest.raises(ProgrammingError, match="permission denied for schema public") as refused:
            await TaskStore.open(server.replace("test@", "refused@"))
        engines.append(refused)  # keeps the engine from the garbage collector, which would close its connections

    looker = await TaskStore.open(await new_database(server))
    count = text("SELECT count(*) FROM pg_stat_activity WHERE usename = 'refused'")
    async with looker.engine.connect() as connection, asyncio.timeout(30):
        while (await connection.execute(count)).scalar_one():
            await connection.rollback()
    await looker.close()


async def test_migrations_make_the_tables_that_the_code_uses(store: TaskStore) -> None:
    def differences(connection: Connection) -> list[object]:
        context = MigrationContext.configure(connection, opts={"version_table": "activitypool_schema"})
        return list(compare_metadata(context, METADATA))

    async with store.engine.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_tables_of_a_newer_program_are_used_unchanged(url: str, store: TaskStore) -> None:
    name = await put(store)
    async with store.engine.begin() as connection:
        await connection.execute(text("UPDATE activitypool_schema SET version_num = '9999'"))
    older = await TaskStore.open(url)

    assert (await claim(older)).instance.id == name
    await older.close()


async def test_version_of_unknown_format_is_left_to_others(store: TaskStore) -> None:
    await put(store)
    row = {"id": "newer", "name": "order", "source": {"name": "order", "steps": ["a"], "future": 1}, "created": NOW}
    async with store.engine.begin() as connection:
        await connection.execute(insert(DEFINITIONS).values(row))

    store._definitions.clear()
    assert [one.id for one in await store.versions(["order"])] == [DEFINITION.id]


async def test_store_in_memory_serves_several_at_once() -> None:
    store = await TaskStore.open("sqlite://")
    names = {await put(store) for _ in range(4)}
    held = await asyncio.gather(*(claim(store, f"r{n}") for n in range(4)))

    assert {one.instance.id for one in held} == names
    await store.close()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_readers_do_not_wait_for_a_writer(store: TaskStore) -> None:
    name = await put(store)
    async with asyncio.timeout(20), store.engine.begin() as writing:
        await writing.execute(text("UPDATE activitypool_instances SET paused = true"))
        assert (await store.get(name)).instance.paused is False
        assert await store.next_due([DEFINITION.id]) == NOW


async def test_runner_that_took_over_from_itself_cannot_use_its_old_lease(store: TaskStore) -> None:
    await put(store)
    old = await claim(store)
    new = await claim(store, now=NOW + LEASE)

    with pytest.raises(InstanceLeaseLostError):
        await store.record(old, NOW + LEASE, finish())
    saved = await store.record(new, NOW + LEASE, finish())
    with pytest.raises(InstanceLeaseLostError):
        await store.record(new, NOW + LEASE, finish())
    assert await store.get(saved.instance.id) == saved


async def completed(store: TaskStore, at: float, outcome: Outcome) -> str:
    name = await put(store, at)
    held = await claim(store, now=at)
    while held.instance.status.running:
        held = await store.record(
            held,
            at,
            lambda known, stored: transitions.ended(known, stored.instance, outcome, at, LEASE, canceled=False),
        )
    return name


async def test_only_instances_completed_long_ago_are_pruned_with_history(
    store: TaskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "PRUNED_AT_ONCE", 2)
    old = [await completed(store, NOW, Returned()) for _ in range(5)]
    failed = await completed(store, NOW, Raised(ErrorRecord("Broken", "no")))
    young = await completed(store, NOW + 10, Returned())
    waits = await put(store, NOW + 500)

    assert await store.prune(NOW) == 0
    assert await store.prune(NOW + 10, keep_failed=True) == len(old)
    assert {one.instance.id for one in await store.listed()} == {failed, young, waits}
    assert await store.prune(NOW + 10) == 1
    assert {one.instance.id for one in await store.listed()} == {young, waits}
    async with store.engine.connect() as connection:
        kept = (await connection.execute(select(HISTORY.c.instance_id).distinct())).scalars().all()
    assert set(kept) == {young, waits}
    assert await put(store) != ""  # its version still exists


async def test_interrupted_pruning_leaves_no_instance_without_history(
    store: TaskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await completed(store, NOW, Returned())

    def failing(table: Table) -> Delete:
        if table is INSTANCES:
            raise RuntimeError("the pruning is interrupted here")
        return delete(table)

    monkeypatch.setattr(store_module, "delete", failing)
    with pytest.raises(RuntimeError, match="is interrupted here"):
        await store.prune(NOW + 1)
    assert [one.number for one in await store.history(name)] == [1, 2, 3, 4]


async def test_claimed_instance_has_the_state_that_the_rules_give(store: TaskStore) -> None:
    """On PostgreSQL the plainest case is one statement, which contains the rules once more."""
    name = await put(store, NOW - 3)

    def rules(taken: ClaimedInstance, now: float, *, canceled: bool = False) -> Instance:
        return transitions.taken(DEFINITION, taken.before, now, LEASE, canceled=canceled)

    fresh = await store.claim("r1", lambda: NOW, [DEFINITION.id], LEASE)
    assert fresh is not None
    assert (fresh.before.next_run_time, fresh.before.status.running) == (NOW - 3, False)
    assert fresh.held.instance == rules(fresh, NOW)
    lost = await store.claim("r2", lambda: NOW + LEASE, [DEFINITION.id], LEASE)
    assert lost is not None
    assert lost.held.instance == rules(lost, NOW + LEASE)
    assert lost.held.instance.status.tries == {"method": 1}

    def cancels(_: Definition, stored: StoredInstance) -> Instance:
        return stored.instance

    await store.change(name, NOW, cancels, cancel=True)
    canceled = await store.claim("r3", lambda: NOW + 2 * LEASE, [DEFINITION.id], LEASE)
    assert canceled is not None
    assert canceled.held.instance == rules(canceled, NOW + 2 * LEASE, canceled=True)
    assert canceled.held.instance.complete

    last = (await store.history(name))[-1]
    assert [one.runner for one in await store.history(name)] == ["", "r1", "r2", "r3"]
    assert (last.status, last.next_run_time) == (status_record(canceled.held.instance, DEFINITION), None)
    assert await store.get(name) == canceled.held


async def test_named_instance_is_claimed_only_when_it_is_due(store: TaskStore) -> None:
    await put(store, NOW - 5)
    named, later = await put(store), await put(store, NOW + 1)

    taken = await store.claim("r1", lambda: NOW, [DEFINITION.id], LEASE, only=named)
    assert taken is not None
    assert taken.held.instance.id == named
    assert await store.claim("r1", lambda: NOW, [DEFINITION.id], LEASE, only=later) is None


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_connection_closed_by_the_server_is_not_used(
    url: str, store: TaskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_UNUSED_SECONDS", 0.0)
    name = await put(store)
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    killer = await TaskStore.open(url)
    async with killer.engine.connect() as connection:
        await connection.execute(text(f"{others} AND datname = current_database()"))
    await killer.close()

    assert (await claim(store)).instance.id == name
