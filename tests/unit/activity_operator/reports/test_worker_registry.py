"""The registry of workers' reports."""

from collections.abc import Callable

import pytest

from activity_operator.core.observation import SlotUse
from activity_operator.reports.report_path import RECOVERY_SECONDS
from activity_operator.reports.worker_registry import RegistryFullError, WorkerRegistry
from activity_worker.contract import (
    Counters,
    Directive,
    ExitOutput,
    HeldLease,
    PollFault,
    PollTrouble,
    Report,
    WorkerState,
)
from tests.unit.activity_operator.reports.builders import event, report

POOL = ("media", "resize")


def problem(registry: WorkerRegistry, now: float, namespace: str = "media") -> str:
    """Return why pool resize of the namespace keeps its size; its stalled deadline is 300 s."""
    return registry.report_path(namespace, "resize", now, 300.0).problem


class Changes:
    """Records the calls of `on_change`."""

    def __init__(self) -> None:
        self.keys: list[tuple[str, str]] = []

    def __call__(self, namespace: str, pool: str) -> None:
        self.keys.append((namespace, pool))


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def registry(changes: Changes) -> WorkerRegistry:
    return WorkerRegistry(changes, jitter=lambda: 0.0)


def test_latest_report_replaces_the_former_one(registry: WorkerRegistry) -> None:
    registry.record(report(), 100.0)
    registry.record(report(sequence=2, busy=1, open_polls=1, leases=(HeldLease("l", 1.0),)), 101.0)

    (latest,) = registry.workers(*POOL)
    assert (latest.busy, latest.open_polls, latest.leases, latest.reported_at, latest.interval_seconds) == (
        1,
        1,
        1,
        101.0,
        1.0,
    )


@pytest.mark.parametrize("sequence", [1, 2])
def test_older_or_repeated_sequence_changes_nothing(registry: WorkerRegistry, changes: Changes, sequence: int) -> None:
    registry.record(report(sequence=2, busy=1), 100.0)
    before = len(changes.keys)

    receipt = registry.record(report(sequence=sequence, busy=2, events=(event(1),)), 101.0)

    assert not receipt.fresh
    assert registry.workers(*POOL)[0].busy == 1
    assert registry.events(*POOL) == ()
    assert len(changes.keys) == before


def test_restarted_container_starts_a_new_sequence(registry: WorkerRegistry) -> None:
    registry.record(report(sequence=50, events=(event(7),)), 100.0)

    receipt = registry.record(report(incarnation="second", sequence=1, events=(event(1),)), 101.0)

    assert (receipt.fresh, receipt.replaced, receipt.ack) == (True, "first", 1)
    assert registry.workers(*POOL)[0].incarnation == "second"


def test_late_report_of_a_former_incarnation_is_ignored(registry: WorkerRegistry) -> None:
    registry.record(report(sequence=5), 100.0)
    registry.record(report(incarnation="second", sequence=1), 101.0)

    assert not registry.record(report(sequence=99, busy=2), 102.0).fresh
    assert registry.workers(*POOL)[0].incarnation == "second"


def test_unchanged_reports_do_not_wake_the_pool(registry: WorkerRegistry, changes: Changes) -> None:
    registry.record(report(), 100.0)
    for second in range(1, 20):
        registry.record(report(sequence=1 + second, idle_seconds=float(second), open_polls=second % 2), 100.0 + second)

    assert changes.keys == [POOL]


@pytest.mark.parametrize(
    "change",
    [
        {"busy": 1},
        {"state": WorkerState.DRAINING},
        {"state": WorkerState.DRAINED},
        {"exit": ExitOutput(10, "denied")},
        {"claims": ("l",)},
        {"leases": (HeldLease("l", 1.0),)},
        {"incarnation": "second"},
        {"events": (event(1, "polling:error", "denied"),)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_change_that_affects_decisions_wakes_the_pool(
    registry: WorkerRegistry, changes: Changes, change: dict[str, object]
) -> None:
    registry.record(report(), 100.0)
    registry.record(report(sequence=2, **change), 101.0)

    assert changes.keys == [POOL, POOL]


def test_report_after_a_silence_wakes_the_pool(registry: WorkerRegistry, changes: Changes) -> None:
    registry.record(report(), 100.0)
    registry.record(report(sequence=2), 104.0)

    assert changes.keys == [POOL, POOL]


def test_repeated_events_are_counted_not_repeated(registry: WorkerRegistry, changes: Changes) -> None:
    for number in range(1, 51):
        events = (event(number, "polling:error", "denied", at=100.0 + number),)
        registry.record(report(sequence=number, events=events), 200.0)

    (entry,) = registry.events(*POOL)
    assert (entry.name, entry.count, entry.first_at, entry.at) == ("polling:error", 50, 101.0, 150.0)
    assert len(changes.keys) == 1


def test_lives_of_twelve_workers_are_kept_as_twelve(registry: WorkerRegistry) -> None:
    life = ("worker:starting", "worker:running", "worker:stopping", "worker:stopped")
    for step, name in enumerate(life, 1):
        for number in range(12):
            pod = {"pod_uid": f"uid-{number}", "pod_name": f"resize-{number}"}
            registry.record(report(sequence=step, events=(event(step, name, at=100.0 + step),), **pod), 200.0)

    entries = registry.events(*POOL)
    assert len(entries) == 20
    assert [(entry.pod, entry.name, entry.at, entry.count) for entry in entries[-12:]] == [
        (f"resize-{number}", "worker:stopped", 104.0, 1) for number in range(12)
    ]


def test_equal_events_of_further_workers_do_not_wake_the_pool(registry: WorkerRegistry, changes: Changes) -> None:
    """The calls of `on_change` are those of each worker's first report, and one for the first event of its kind."""
    for number in range(50):
        pod = {"pod_uid": f"uid-{number}", "pod_name": f"resize-{number}"}
        registry.record(report(**pod), 100.0)
        registry.record(report(sequence=2, events=(event(1, "polling:error", "denied"),), **pod), 100.0)

    assert len(changes.keys) == 51
    assert len(registry.events(*POOL)) == 20


def test_flood_of_different_events_keeps_the_last_twenty(registry: WorkerRegistry) -> None:
    for number in range(1, 101):
        registry.record(
            report(sequence=number, events=(event(number, "worker:error", f"no. {number}"),)), 100.0 + number
        )

    assert [entry.message for entry in registry.events(*POOL)] == [f"no. {number}" for number in range(81, 101)]


def test_events_that_were_acknowledged_are_not_counted_again(registry: WorkerRegistry) -> None:
    registry.record(report(events=(event(1), event(2, "worker:running"))), 100.0)
    receipt = registry.record(report(sequence=2, events=(event(2, "worker:running"), event(3))), 101.0)

    assert receipt.ack == 3
    assert {entry.name: entry.count for entry in registry.events(*POOL)} == {"worker:running": 1, "worker:starting": 2}


def test_stop_event_has_exit_code_and_message(registry: WorkerRegistry) -> None:
    stopped = (event(1, "worker:stopped"),)
    registry.record(report(state=WorkerState.STOPPED, exit=ExitOutput(10, "polling failed"), events=stopped), 100.0)

    (entry,) = registry.events(*POOL)
    assert (entry.exit_code, entry.message, entry.pod) == (10, "polling failed", "resize-a")


def test_task_events_and_unknown_names_are_not_recorded(registry: WorkerRegistry) -> None:
    receipt = registry.record(report(events=(event(1, "task:start"), event(2, "my:event"))), 100.0)

    assert receipt.ack == 2
    assert registry.events(*POOL) == ()


def test_event_with_a_future_time_is_recorded_as_of_now(registry: WorkerRegistry) -> None:
    registry.record(report(events=(event(1, at=1e11),)), 100.0)

    assert registry.events(*POOL)[0].at == 100.0


def test_waiting_directive_shortens_the_next_interval(changes: Changes) -> None:
    registry = WorkerRegistry(changes, jitter=lambda: 0.0, rate=1.0)
    for number in range(20):
        registry.record(report(pod_uid=f"uid-{number}"), 100.0)
    registry.set_directives(*POOL, {"uid-3": Directive.DRAIN})

    ordered = registry.record(report(pod_uid="uid-3", sequence=2), 101.0)
    others = registry.record(report(pod_uid="uid-4", sequence=2), 101.0)
    obeyed = registry.record(report(pod_uid="uid-3", sequence=3, state=WorkerState.DRAINING), 102.0)

    assert ordered.directive is Directive.DRAIN
    assert ordered.next_report_seconds < 3.0 < others.next_report_seconds
    assert obeyed.next_report_seconds == 20.0


def test_removed_directive_lifts_the_cordon(registry: WorkerRegistry) -> None:
    registry.set_directives(*POOL, {"uid-a": Directive.DRAIN})
    registry.record(report(), 100.0)
    registry.set_directives(*POOL, {})

    assert registry.record(report(sequence=2, state=WorkerState.DRAINING), 101.0).directive is Directive.RUN


def test_end_of_standing_by_keeps_the_other_directives(registry: WorkerRegistry) -> None:
    registry.set_directives(*POOL, {"uid-a": Directive.STANDBY, "uid-b": Directive.DRAIN})
    registry.end_stand_by(*POOL)

    assert [registry.directive(POOL, uid) for uid in ("uid-a", "uid-b")] == [Directive.RUN, Directive.DRAIN]
    registry.forget_pool(*POOL)
    registry.end_stand_by(*POOL)
    assert registry.directive(POOL, "uid-a") is Directive.KEEP


def test_forgotten_worker_leaves_no_state(registry: WorkerRegistry) -> None:
    registry.record(report(), 100.0)
    registry.forget("uid-a")
    registry.forget("uid-a")
    registry.forget_pool(*POOL)

    assert len(registry) == 0
    assert registry.workers(*POOL) == ()


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (lambda changes: WorkerRegistry(changes, max_workers=3), "3 workers at most"),
        (lambda changes: WorkerRegistry(changes, max_per_namespace=3), "3 workers a namespace"),
    ],
)
def test_number_of_workers_is_limited(changes: Changes, make: Callable[[Changes], WorkerRegistry], limit: str) -> None:
    registry = make(changes)
    for number in range(3):
        registry.record(report(pod_uid=f"uid-{number}"), 100.0)

    with pytest.raises(RegistryFullError, match=limit):
        registry.record(report(pod_uid="uid-3"), 100.0)
    registry.forget("uid-0")
    registry.record(report(pod_uid="uid-3"), 100.0)


def test_new_term_has_no_reports_and_a_degraded_report_path(registry: WorkerRegistry) -> None:
    registry.record(report(), 100.0)
    registry.begin_term(200.0, expected_workers=4)

    assert registry.workers(*POOL) == ()
    assert problem(registry, 201.0)
    assert not problem(registry, 206.0)


def test_new_term_has_no_directives_and_no_events(registry: WorkerRegistry) -> None:
    """The status keeps the events, and another leader may have withdrawn the directives since."""
    registry.set_directives(*POOL, {"uid-a": Directive.DRAIN})
    registry.add_event(POOL, "OOMKilled", "out of memory", at=100.0)
    registry.begin_term(200.0, expected_workers=1)

    assert registry.events(*POOL) == ()
    assert registry.record(report(), 201.0).directive is Directive.KEEP


def test_simultaneous_silence_degrades_the_report_path(registry: WorkerRegistry) -> None:
    for number in range(10):
        registry.record(report(pod_uid=f"uid-{number}"), 100.0)

    assert not problem(registry, 105.0)
    assert "10 of 10 workers of namespace media" in problem(registry, 130.0)
    assert not problem(registry, 130.0, namespace="other")


def test_report_path_stays_degraded_until_every_worker_reports_again(registry: WorkerRegistry) -> None:
    for number in range(10):
        registry.record(report(pod_uid=f"uid-{number}"), 100.0)
    assert problem(registry, 170.0)
    for number in range(9):
        registry.record(report(pod_uid=f"uid-{number}", sequence=2), 171.0 + number)
        assert "10 of 10" in problem(registry, 171.0 + number)
    registry.record(report(pod_uid="uid-9", sequence=2), 181.0)

    assert not problem(registry, 182.0)


def test_late_returner_stays_excused_after_the_others_report(registry: WorkerRegistry) -> None:
    """It did not fail alone, so it must not be replaced for it."""
    for number in range(4):
        registry.record(report(pod_uid=f"uid-{number}"), 100.0)
    assert registry.report_path(*POOL, 130.0, 300.0).excused.keys() == {f"uid-{number}" for number in range(4)}
    for second in range(1, 600):
        for number in range(3):
            registry.record(report(pod_uid=f"uid-{number}", sequence=1 + second), 130.0 + second)
        path = registry.report_path(*POOL, 130.0 + second, 300.0)
        assert bool(path.problem) == (second <= RECOVERY_SECONDS)
        if second > RECOVERY_SECONDS:
            assert set(path.excused) == ({"uid-3"} if 130.0 + second < 700.0 else set())
    registry.record(report(pod_uid="uid-3", sequence=2), 730.0)

    assert registry.report_path(*POOL, 731.0, 10_000.0).excused == {}


@pytest.mark.parametrize("later", [30.0, 599.0, 601.0, 3600.0, 30 * 86400.0])
def test_silent_tenant_holds_only_its_own_pools_and_not_forever(registry: WorkerRegistry, later: float) -> None:
    """60 of 110 workers are cut off: more than half of all, and all of one namespace."""
    for number in range(60):
        registry.record(report(namespace="big", pod_uid=f"big-{number}"), 100.0)
    for number in range(50):
        registry.record(report(namespace="small", pod_uid=f"small-{number}"), 100.0 + later)

    assert bool(problem(registry, 100.0 + later, namespace="big")) == (later < 600.0)
    path = registry.report_path("small", "resize", 100.0 + later, 300.0)
    assert (path.problem, path.excused) == ("", {})


def test_workers_of_a_silent_node_are_excused_in_every_pool(changes: Changes) -> None:
    node_of = {f"{pool}-{number}": "n1" if number < 2 else "n2" for pool in "ab" for number in range(6)}
    registry = WorkerRegistry(changes, jitter=lambda: 0.0, node_of=node_of.__getitem__)
    for uid, node in node_of.items():
        registry.record(report(pool=uid[0], pod_uid=uid), 100.0 if node == "n1" else 130.0)

    for pool in "ab":
        path = registry.report_path("media", pool, 130.0, 300.0)
        assert (path.problem, set(path.excused)) == ("", {f"{pool}-0", f"{pool}-1"})
        assert "4 of 4 workers on node n1" in path.excused[f"{pool}-0"]


def test_worker_that_only_reports_its_exit_is_a_failed_start(registry: WorkerRegistry, changes: Changes) -> None:
    end = ExitOutput(1, "handler:handle: no such module")
    registry.record(report(state=WorkerState.STOPPED, exit=end), 100.0)
    assert registry.workers(*POOL)[0].failed_start == "handler:handle: no such module"
    registry.record(report(incarnation="second", state=WorkerState.STOPPED, exit=ExitOutput(1)), 110.0)
    assert registry.workers(*POOL)[0].failed_start == "exit code 1"

    registry.record(report(incarnation="third"), 120.0)
    assert registry.workers(*POOL)[0].failed_start == ""
    registry.record(report(incarnation="third", sequence=2, state=WorkerState.STOPPED, exit=end), 130.0)
    assert registry.workers(*POOL)[0].failed_start == "", "the worker had run before"


def test_poll_error_and_its_end_wake_the_pool(registry: WorkerRegistry, changes: Changes) -> None:
    trouble = PollTrouble(PollFault.DENIED, "AccessDeniedException", "no")
    registry.record(report(), 100.0)
    before = len(changes.keys)

    registry.record(report(sequence=2, poll_trouble=trouble), 101.0)
    registry.record(report(sequence=3, poll_trouble=trouble), 102.0)
    assert registry.workers(*POOL)[0].poll_trouble == trouble
    registry.record(report(sequence=4), 103.0)

    assert registry.workers(*POOL)[0].poll_trouble is None
    assert len(changes.keys) - before == 2


def test_unknown_poll_fault_of_a_newer_worker_is_read_as_other() -> None:
    known = PollTrouble(PollFault.MISSING, "ActivityDoesNotExist", "gone")
    wire = report(poll_trouble=known).to_wire()
    assert Report.from_wire(wire).poll_trouble == known

    newer = {**wire, "pollTrouble": {"fault": "eclipse", "since": 7}}
    assert Report.from_wire(newer).poll_trouble == PollTrouble(PollFault.OTHER)


def test_counters_become_the_use_of_slots_between_two_reports(registry: WorkerRegistry) -> None:
    registry.record(report(state=WorkerState.STARTING), 100.0)
    assert registry.workers(*POOL)[0].use is None
    registry.record(report(sequence=2, counters=Counters(received=1, busy_seconds=1.0)), 101.0)
    assert registry.workers(*POOL)[0].use == SlotUse(1.0, 0.5, 1, 0, joined=True)
    registry.record(report(sequence=3, counters=Counters(received=5, empty_polls=2, busy_seconds=7.0)), 105.0)

    assert registry.workers(*POOL)[0].use == SlotUse(4.0, 0.75, 4, 2)


def test_worker_without_counters_and_a_restarted_one_have_no_use_of_slots(registry: WorkerRegistry) -> None:
    registry.record(report(counters=Counters(received=5, busy_seconds=7.0)), 100.0)
    registry.record(report(incarnation="second", counters=Counters(received=1, busy_seconds=1.0)), 110.0)
    assert registry.workers(*POOL)[0].use is None
    registry.record(report(incarnation="third", busy=1), 120.0)
    registry.record(report(incarnation="third", sequence=2, busy=1), 130.0)

    assert registry.workers(*POOL)[0].use is None
