"""The contract of a broker's store, on both databases."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, event, select, text
from sqlalchemy.dialects import sqlite

from activity_worker.taskbroker.lifecycle.inflight import FailureReason, Outcome, admit, give_out
from activity_worker.taskbroker.lifecycle.inflight import report as reported
from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.lifecycle.upkeep import ID_KEPT_SECONDS, UpkeepStep
from activity_worker.taskbroker.protocol.activation import OnAttemptsExceeded, RetryState, parse_activation
from activity_worker.taskbroker.store import broker_store, dead_letters, statements
from activity_worker.taskbroker.store.broker_store import BrokerStore, QueueDepth
from activity_worker.taskbroker.store.claims import claim_tasks, deliver_claims, release_claims
from activity_worker.taskbroker.store.dead_letters import TaskInFlightError, UnknownDeadLetterError
from activity_worker.taskbroker.store.migrations import VERSION_TABLE
from activity_worker.taskbroker.store.statements import Report, TaskFilter
from activity_worker.taskbroker.store.tables import FINISHED_IDS, METADATA
from tests.clock import Clock
from tests.integration.broker.conftest import POLICY
from tests.unit.activity_worker.taskbroker.activations import NOW, activation_bytes

ANY = TaskFilter()
KEPT = RetryState(0, 3, OnAttemptsExceeded.DEADLETTER)


async def add(store: BrokerStore, *ids: str, **fields: Any) -> int:
    """Add activations with these ids; return how many are new."""
    return await store.add([admit(activation_bytes(one, **fields), store.clock()) for one in ids])


async def taken(store: BrokerStore, wanted: TaskFilter = ANY) -> str | None:
    """Return the id of the activation that is given out."""
    data = await store.take(wanted)
    return None if data is None else parse_activation(data).id


async def upkeep(store: BrokerStore) -> list[int]:
    """Do all steps; return how many activations each one moved."""
    return [await store.upkeep(step) for step in UpkeepStep]


async def test_activation_is_kept_as_it_was_admitted(store: BrokerStore) -> None:
    admitted = admit(activation_bytes(application="shop", expires=60, delay=5, retry=KEPT), NOW)
    assert await store.add([admitted]) == 1
    assert await store.get("one") == admitted
    assert await store.get("two") is None


async def test_same_id_again_changes_nothing(store: BrokerStore) -> None:
    assert await add(store, "one", "two") == 2
    assert await taken(store) == "one"
    before = await store.get("one")
    assert await add(store, "two", "one", "three", "three", delay=7) == 1
    assert await store.get("one") == before


async def test_id_of_a_task_that_is_over_is_not_taken_again_at_once(store: BrokerStore, clock: Clock) -> None:
    # A producer whose answer was lost repeats its call when the task may have run already.
    assert await add(store, "one") == 1
    await taken(store)
    await store.report([Report("one", Outcome.COMPLETE)])
    await upkeep(store)
    assert await store.get("one") is None
    clock.now = NOW + ID_KEPT_SECONDS - 1
    assert await add(store, "one", "two") == 1
    assert await store.get("one") is None
    clock.now = NOW + ID_KEPT_SECONDS
    assert await add(store, "one", "two") == 1


async def test_ids_of_finished_tasks_are_forgotten(store: BrokerStore, clock: Clock) -> None:
    for one in ("one", "two"):
        await add(store, one)
        await taken(store)
        await store.report([Report(one, Outcome.COMPLETE)])
        await upkeep(store)
        clock.now += ID_KEPT_SECONDS
    await upkeep(store)
    async with store.engine.connect() as connection:
        assert (await connection.execute(select(FINISHED_IDS))).all() == []


async def test_many_activations_are_added_at_once(store: BrokerStore) -> None:
    assert await add(store, *(f"task-{number}" for number in range(2500))) == 2500
    assert await taken(store) == "task-0"


async def test_giving_out_writes_what_the_pure_function_says(store: BrokerStore, clock: Clock) -> None:
    admitted = admit(activation_bytes(processing_deadline_duration=30), NOW)
    await store.add([admitted])
    clock.now += 7
    assert await store.take(ANY) == admitted.data
    assert await store.get("one") == give_out(admitted, NOW + 7, POLICY.grace_seconds)


async def test_longest_due_is_given_out_first(store: BrokerStore, clock: Clock) -> None:
    await add(store, "delayed", delay=5)
    await add(store, "first", "second")
    clock.now += 10
    await add(store, "late")
    await upkeep(store)
    assert [await taken(store) for _ in range(5)] == ["first", "second", "delayed", "late", None]


async def test_expired_task_is_not_given_out_before_upkeep_sees_it(store: BrokerStore, clock: Clock) -> None:
    await add(store, "expired", expires=5)
    await add(store, "good")
    clock.now += 5
    assert await taken(store) == "good"
    assert await taken(store) is None


async def test_worker_gets_tasks_of_its_namespace_and_application_only(store: BrokerStore) -> None:
    await store.add([admit(activation_bytes("mail"), NOW)])
    await store.add([admit(activation_bytes("shop-mail", application="shop"), NOW)])
    await store.add([admit(activation_bytes("shop-image", application="shop", namespace="image"), NOW)])
    assert await taken(store, TaskFilter("image", "none")) is None
    assert await taken(store, TaskFilter(None, "shop")) == "shop-mail"
    assert await taken(store, TaskFilter("mail", None)) == "mail"
    assert await taken(store, TaskFilter("image", "shop")) == "shop-image"


@pytest.mark.parametrize("outcome", Outcome)
async def test_report_writes_what_the_pure_function_says(store: BrokerStore, outcome: Outcome) -> None:
    await add(store, "one")
    await taken(store)
    before = await store.get("one")
    assert before is not None
    report = Report("one", outcome, max_attempts=2**32 - 1, retry_delay=2**64 - 1)
    assert await store.report([report]) == (1, None)
    after = reported(before, outcome, max_attempts=report.max_attempts, retry_delay=report.retry_delay)
    assert await store.get("one") == after
    assert await store.report([report]) == (0, None)


async def test_reports_without_effect(store: BrokerStore) -> None:
    await add(store, "new")
    assert await store.report([Report("new", Outcome.COMPLETE), Report("unknown", Outcome.COMPLETE)]) == (0, None)


async def test_report_and_next_task_are_one_transaction(store: BrokerStore) -> None:
    await add(store, "one", "two")
    await taken(store)
    changed, data = await store.report([Report("one", Outcome.COMPLETE)], ANY)
    assert (changed, parse_activation(data or b"").id) == (1, "two")
    assert await store.report([Report("two", Outcome.COMPLETE)], ANY) == (1, None)


@pytest.mark.parametrize("outcome", [Outcome.COMPLETE, Outcome.FAILURE])
async def test_task_that_is_reported_late_is_not_given_out_with_that(
    store: BrokerStore, clock: Clock, outcome: Outcome
) -> None:
    await add(store, "one", "two", "three", "four")
    _, given = await store.exchange([], ANY, 2)
    clock.now += 3600.0
    await upkeep(store)
    # Its deadline has passed: it is pending again, and the first one.
    reports = [Report(parse_activation(one.data).id, outcome) for one in (*given, *given)]
    changed, others = await store.exchange([*reports, Report("unknown", outcome)], ANY, 9)
    assert changed == Counter({outcome: 2})
    assert [(parse_activation(one.data).id, one.attempt) for one in others] == [("three", 1), ("four", 1)]
    assert await store.exchange(reports, ANY, 9) == (Counter({outcome: 0}), [])


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_reported_task_is_not_given_out_whatever_the_server_does_first(store: BrokerStore, clock: Clock) -> None:
    """The parts of one statement have no order but that of what they read, and a plan may change with a release."""
    await add(store, "one", "two")
    await taken(store)
    clock.now += 3600.0
    await upkeep(store)
    counted = "SELECT counted.changed, given"
    joined = "FROM (SELECT count(*) AS changed \nFROM reported) AS counted LEFT OUTER JOIN given ON true"
    reordered: list[str] = []

    def give_out_first(*call: Any) -> tuple[str, Any]:
        statement: str = call[2]
        if joined in statement:
            reordered.append(statement)
            first = "SELECT (SELECT count(*) FROM reported) AS changed, given"
            statement = statement.replace(counted, first).replace(joined, "FROM given")
        return statement, call[3]

    event.listen(store.engine.sync_engine, "before_cursor_execute", give_out_first, retval=True)
    changed, given = await store.exchange([Report("one", Outcome.COMPLETE)], ANY, 1)
    assert len(reordered) == 1
    assert changed == Counter({Outcome.COMPLETE: 1})
    assert [parse_activation(one.data).id for one in given] == ["two"]


async def test_exchange_gives_out_what_its_filter_wants(store: BrokerStore) -> None:
    await add(store, "one")
    await add(store, "image", namespace="image")
    await add(store, "shop", application="shop")
    await add(store, "both", namespace="image", application="shop")
    assert await taken(store) == "one"
    for wanted, expected in (
        (TaskFilter(namespace="image", application="shop"), ["both"]),
        (TaskFilter(application="shop"), ["shop"]),
        (TaskFilter(namespace="image"), ["image"]),
    ):
        _, given = await store.exchange([Report("one", Outcome.COMPLETE)], wanted, 9)
        assert [parse_activation(one.data).id for one in given] == expected


async def test_what_does_not_fit_into_an_answer_is_given_back(
    store: BrokerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(store, "one", "two", "three", "four")
    assert await taken(store) == "one"
    size = len(activation_bytes("two"))
    monkeypatch.setattr(broker_store, "ANSWER_BYTES", size * 2)
    _, given = await store.exchange([Report("one", Outcome.COMPLETE)], ANY, 9)
    assert [parse_activation(one.data).id for one in given] == ["two"]
    left = await store.get("four")
    assert left is not None
    assert (left.state, left.attempts, left.deadline) == (ActivationState.PENDING, 0, None)


async def test_brokers_that_exchange_the_same_tasks_do_not_wait_for_each_other(url: str, clock: Clock) -> None:
    stores = [await BrokerStore.open(url, POLICY, clock=clock) for _ in range(2)]
    try:
        ids = [f"task-{number:03}" for number in range(200)]
        await add(stores[0], *ids)
        done: list[list[str]] = [[], []]

        async def work(number: int) -> None:
            mine: list[str] = []
            while True:
                # Each reports the other's tasks as well, in the other order.
                reported = [*mine, *done[1 - number][-5:]]
                reports = [Report(one, Outcome.COMPLETE) for one in (reported if number else reversed(reported))]
                _, given = await stores[number].exchange(reports, ANY, 7)
                done[number] = [*done[number], *mine]
                mine = [parse_activation(one.data).id for one in given]
                if not mine:
                    return

        async with asyncio.timeout(60):
            await asyncio.gather(work(0), work(1), work(0), work(1))
        assert sorted(done[0] + done[1]) == ids
    finally:
        for store in stores:
            await store.close()


async def test_batch_of_reports(store: BrokerStore) -> None:
    await add(store, "one", "two", "three")
    for _ in range(2):
        await taken(store)
    assert await store.report([Report(one, Outcome.COMPLETE) for one in ("two", "one", "three")]) == (2, None)


async def test_upkeep_moves_each_task_by_the_step_for_it(store: BrokerStore, clock: Clock) -> None:
    await add(store, "retried", "lost", "failed", "kept", "done", retry=KEPT)
    for _ in range(5):
        await taken(store)
    await add(store, "expired", expires=5)
    await add(store, "delayed", delay=5)
    reports = {"retried": Outcome.RETRY, "failed": Outcome.FAILURE, "kept": Outcome.FAILURE, "done": Outcome.COMPLETE}
    await store.report([Report(one, outcome) for one, outcome in reports.items()])
    clock.now += 20
    # A retry, a deadline, an expiry and a delay; three failures, of which one expired; five that are over.
    assert await upkeep(store) == [1, 1, 1, 1, 3, 5]
    states = {depth.state: depth.count for depth in await store.depths()}
    assert states == {ActivationState.PENDING: 3}
    assert await upkeep(store) == [0] * 6


async def test_upkeep_goes_through_more_than_one_batch(store: BrokerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_store, "BATCH", 2)
    await add(store, *"abcde", delay=1)
    store.clock = Clock(NOW + 1)
    assert await upkeep(store) == [0, 0, 0, 5, 0, 0]


async def test_lost_worker_costs_attempts_and_no_retry(store: BrokerStore, clock: Clock) -> None:
    await add(store, "one", retry=KEPT)
    for attempt in range(POLICY.max_attempts):
        assert await taken(store) == "one"
        clock.now += 13
        moved = await upkeep(store)
        assert moved[1] == 1, f"attempt {attempt}"
    assert await taken(store) is None
    (stored,) = await dead_letters.list_dead_letters(store)
    assert (stored.letter.reason, stored.letter.attempts) == (FailureReason.DEADLINE, POLICY.max_attempts)


async def test_depths_by_application_namespace_and_state(store: BrokerStore, clock: Clock) -> None:
    await add(store, "one", "two")
    clock.now += 9
    await add(store, "three", application="shop")
    await taken(store)
    assert sorted(await store.depths(), key=lambda depth: (depth.application, depth.state)) == [
        QueueDepth("", "mail", ActivationState.PENDING, 1, NOW),
        QueueDepth("", "mail", ActivationState.PROCESSING, 1, NOW),
        QueueDepth("shop", "mail", ActivationState.PENDING, 1, NOW + 9),
    ]


async def test_claims_are_those_that_have_been_due_longest(store: BrokerStore, clock: Clock) -> None:
    await add(store, "delayed", delay=5)
    await add(store, "first", "expired", "other", expires=9)
    await store.add([admit(activation_bytes("shop", application="shop"), NOW)])
    clock.now += 7
    await add(store, "late")
    await upkeep(store)
    claimed = await claim_tasks(store, TaskFilter("mail", "shop"), 9, 12.0)
    assert [one.id for one in claimed] == ["shop"]
    assert [one.id for one in await claim_tasks(store, ANY, 2, 12.0)] == ["first", "expired"]
    clock.now += 2
    assert [one.id for one in await claim_tasks(store, ANY, 9, 12.0)] == ["delayed", "late"]


async def test_claim_is_ended_once(store: BrokerStore, clock: Clock) -> None:
    await add(store, "one")
    (refused,) = await claim_tasks(store, ANY, 1, 12.0)
    assert await release_claims(store, [refused]) == 1
    assert await deliver_claims(store, [refused]) == 0
    (expired,) = await claim_tasks(store, ANY, 1, 12.0)
    clock.now += 12
    await upkeep(store)
    (accepted,) = await claim_tasks(store, ANY, 1, 12.0)
    # A broker that was frozen ends a claim that is another one by now.
    assert await release_claims(store, [expired]) == await deliver_claims(store, [expired]) == 0
    assert await deliver_claims(store, [accepted]) == 1
    found = await store.get("one")
    assert found is not None
    assert (found.state, found.attempts, found.deadline) == (ActivationState.PROCESSING, 2, clock.now + 13)


async def test_expired_claim_of_a_task_at_most_once_fails_it(store: BrokerStore, clock: Clock) -> None:
    await add(store, "one", retry=replace(KEPT, at_most_once=True))
    await claim_tasks(store, ANY, 1, 12.0)
    clock.now += 12
    await upkeep(store)
    (stored,) = await dead_letters.list_dead_letters(store)
    assert (stored.letter.id, stored.letter.reason) == ("one", FailureReason.DEADLINE)


async def dead(store: BrokerStore, *ids: str) -> None:
    """Make dead letters."""
    await add(store, *ids, retry=replace(KEPT, attempts=2), expires=60)
    for one in ids:
        assert await taken(store) == one
    await store.report([Report(one, Outcome.FAILURE) for one in ids])
    await upkeep(store)


async def test_dead_letter_is_requeued_once(store: BrokerStore, clock: Clock) -> None:
    await dead(store, "one")
    (stored,) = await dead_letters.list_dead_letters(store)
    clock.now += 1000
    assert await dead_letters.requeue_dead_letter(store, stored.number) == "one"
    assert await dead_letters.list_dead_letters(store) == []
    again = await store.get("one")
    assert again is not None
    assert (again.state, again.attempts, again.expires_at) == (ActivationState.PENDING, 0, NOW + 1060)
    with pytest.raises(UnknownDeadLetterError, match=f"no dead letter {stored.number}"):
        await dead_letters.requeue_dead_letter(store, stored.number)


async def test_dead_letter_waits_while_its_task_is_in_flight_again(store: BrokerStore, clock: Clock) -> None:
    await dead(store, "one")
    clock.now += ID_KEPT_SECONDS
    await add(store, "one")
    (stored,) = await dead_letters.list_dead_letters(store)
    with pytest.raises(TaskInFlightError, match="task one is in flight"):
        await dead_letters.requeue_dead_letter(store, stored.number)
    assert await dead_letters.get_dead_letter(store, stored.number) == stored.letter


async def test_dead_letters_are_listed_and_purged(store: BrokerStore, clock: Clock) -> None:
    await dead(store, "one", "two")
    clock.now += 10
    await dead(store, "three")
    listed = await dead_letters.list_dead_letters(store, namespace="mail")
    assert [stored.letter.id for stored in listed] == ["three", "two", "one"]
    assert await dead_letters.list_dead_letters(store, namespace="other") == []
    assert await dead_letters.purge_dead_letters(store, numbers=[listed[1].number]) == 1
    assert await dead_letters.purge_dead_letters(store, before=NOW + 10) == 1
    assert [stored.letter.id for stored in await dead_letters.list_dead_letters(store)] == ["three"]
    with pytest.raises(UnknownDeadLetterError):
        await dead_letters.get_dead_letter(store, listed[2].number)


async def test_two_brokers_give_out_each_task_once(url: str, clock: Clock) -> None:
    stores = [await BrokerStore.open(url, POLICY, clock=clock) for _ in range(2)]
    try:
        ids = {f"task-{number}" for number in range(200)}
        await add(stores[0], *ids)
        given = await asyncio.gather(*(taken(stores[number % 2]) for number in range(100)))
        claims = await asyncio.gather(*(claim_tasks(stores[number % 2], ANY, 7, 12.0) for number in range(30)))
        assert all(len(some) <= 7 for some in claims)
        assert sorted([*filter(None, given), *(one.id for some in claims for one in some)]) == sorted(ids)
        clock.now += 13
        # Both see to all lost tasks at once; each is moved by one of them.
        moved = await asyncio.gather(*(store.upkeep(UpkeepStep.PASS_DEADLINES) for store in stores))
        assert sum(moved) == 200
    finally:
        for store in stores:
            await store.close()


async def test_tables_are_those_of_the_migrations(store: BrokerStore) -> None:
    def differences(connection: Connection) -> list[Any]:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        found: list[Any] = compare_metadata(context, METADATA)
        return found

    async with store.engine.connect() as connection:
        assert await connection.run_sync(differences) == []


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_frequent_statements_use_the_partial_indexes(store: BrokerStore) -> None:
    """Only on SQLite: PostgreSQL reads a small table whole, whatever its indexes."""
    expected: dict[UpkeepStep | tuple[bool, bool], str] = {
        (False, False): "activitypool_activations_pending",
        (True, True): "activitypool_activations_pending_of",
        (True, False): "activitypool_activations_pending_namespace",
        (False, True): "activitypool_activations_pending_application",
        UpkeepStep.APPEND_RETRIES: "activitypool_activations_moving",
        UpkeepStep.PASS_DEADLINES: "activitypool_activations_moving",
        UpkeepStep.EXPIRE: "activitypool_activations_expiring",
        UpkeepStep.END_DELAYS: "activitypool_activations_delayed",
        UpkeepStep.HANDLE_FAILURES: "activitypool_activations_moving",
        UpkeepStep.REMOVE_COMPLETE: "activitypool_activations_moving",
    }
    values = {"now": NOW, "grace": 3.0, "batch": 1, "most": 1, "wanted_namespace": "mail", "wanted_application": "shop"}
    values["claimed_until"] = NOW
    pairs: list[tuple[Any, str]] = [
        (statements.DUE_IN[key] if isinstance(key, UpkeepStep) else statements.GIVE_OUT[key], index)
        for key, index in expected.items()
    ]
    pairs += [(statements.CLAIM[key], index) for key, index in expected.items() if not isinstance(key, UpkeepStep)]
    for statement, index in pairs:
        compiled = statement.compile(dialect=sqlite.dialect(paramstyle="named"))
        async with store.engine.connect() as connection:
            plan = await connection.execute(text(f"EXPLAIN QUERY PLAN {compiled}"), {**compiled.params, **values})
            lines = [row.detail for row in plan]
        assert any(f"INDEX {index} " in f"{line} " for line in lines), (str(statement), lines)
        assert not any("TEMP B-TREE" in line for line in lines), (str(statement), lines)
