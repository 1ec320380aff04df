"""When a worker reports, and what it does with the replies."""

import math

import pytest

from activity_worker.contract import MAX_BUFFERED_EVENTS, Directive, ExitOutput, Grant, Reply, Report, WorkerState
from activity_worker.supervisor.report_state import (
    EDGE_SPACING_SECONDS,
    MISDIRECTED_PAUSE_SECONDS,
    RETRY_MAX_SECONDS,
    Instructions,
    PodIdentity,
    ReportState,
    WorkerSnapshot,
)

RUNNING = WorkerSnapshot(WorkerState.RUNNING)


@pytest.fixture
def state() -> ReportState:
    return ReportState(PodIdentity("shop", "resize", "pod", "uid", "one", slots=2))


def exchange(state: ReportState, snapshot: WorkerSnapshot, now: float, **parts: object) -> tuple[Report, Instructions]:
    """Compose a report at `now` and process its reply."""
    reply = {"term": 1, "next_report_seconds": 30.0, **parts}
    report = state.compose(snapshot, now)
    return report, state.answered(Reply(**reply))  # type: ignore[arg-type]


def test_first_report_is_due_at_once(state: ReportState) -> None:
    assert state.due_at(WorkerSnapshot(WorkerState.STARTING)) == -math.inf


def test_at_most_one_report_is_in_flight(state: ReportState) -> None:
    state.compose(RUNNING, now=0.0)

    assert state.due_at(WorkerSnapshot(WorkerState.DRAINED)) == math.inf


def test_changes_wait_for_the_interval_that_the_last_reply_ordered(state: ReportState) -> None:
    exchange(state, RUNNING, 10.0)

    assert state.due_at(WorkerSnapshot(WorkerState.RUNNING, busy=2)) == 40.0


@pytest.mark.parametrize(
    "state_of_worker", [WorkerState.DRAINING, WorkerState.DRAINED, WorkerState.STOPPING, WorkerState.STOPPED]
)
def test_leaving_is_reported_at_once(state: ReportState, state_of_worker: WorkerState) -> None:
    exchange(state, RUNNING, 10.0)

    assert state.due_at(WorkerSnapshot(state_of_worker)) == -math.inf


def test_crash_is_reported_at_once(state: ReportState) -> None:
    exchange(state, RUNNING, 10.0)

    assert state.due_at(WorkerSnapshot(WorkerState.RUNNING, exit=ExitOutput(1, "boom"))) == -math.inf


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (1, 0), (0, 1)])
def test_saturation_and_idleness_are_reported_quickly_in_a_small_fleet(
    state: ReportState, before: int, after: int
) -> None:
    exchange(state, WorkerSnapshot(WorkerState.RUNNING, busy=before), 10.0, next_report_seconds=1.0)

    assert state.due_at(WorkerSnapshot(WorkerState.RUNNING, busy=after)) == 10.0 + EDGE_SPACING_SECONDS


@pytest.mark.parametrize(("interval", "early"), [(30.0, True), (1.0, False)])
def test_early_report_is_sent_only_with_the_operators_grant(state: ReportState, interval: float, early: bool) -> None:
    exchange(state, RUNNING, 10.0, next_report_seconds=interval, early_report=early)
    due = 10.0 + (min(EDGE_SPACING_SECONDS, interval) if early else interval)

    assert state.due_at(WorkerSnapshot(WorkerState.RUNNING, busy=2)) == due


def test_unchanged_busy_slots_wait_for_the_interval(state: ReportState) -> None:
    exchange(state, WorkerSnapshot(WorkerState.RUNNING, busy=2), 10.0, next_report_seconds=1.0)

    assert state.due_at(WorkerSnapshot(WorkerState.RUNNING, busy=2)) == 11.0


def test_failed_reports_are_retried_with_backoff_until_an_answer(state: ReportState) -> None:
    pauses = []
    for _ in range(7):
        state.compose(RUNNING, now=100.0)
        state.failed(now=100.0)
        pauses.append(state.due_at(RUNNING) - 100.0)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, RETRY_MAX_SECONDS, RETRY_MAX_SECONDS]

    exchange(state, RUNNING, 200.0, next_report_seconds=3.0)
    assert state.due_at(RUNNING) == 203.0


def test_failed_report_is_not_repeated_faster_than_ordered(state: ReportState) -> None:
    exchange(state, RUNNING, 0.0)
    state.compose(RUNNING, now=30.0)
    state.failed(now=30.1)

    assert state.due_at(RUNNING) == 60.0


def test_second_misdirected_report_in_a_row_is_retried_after_a_pause(state: ReportState) -> None:
    exchange(state, RUNNING, 0.0)
    state.compose(RUNNING, now=30.0)
    state.misdirected(now=30.1)
    assert state.due_at(RUNNING) == 30.1

    state.compose(RUNNING, now=30.1)
    state.misdirected(now=30.2)
    assert state.due_at(RUNNING) == 30.2 + MISDIRECTED_PAUSE_SECONDS


def test_reply_of_a_former_leader_is_ignored(state: ReportState) -> None:
    exchange(state, RUNNING, 0.0, term=7)

    grant = Grant("a", "token", "{}")
    _, instructions = exchange(state, RUNNING, 30.0, term=6, directive=Directive.DRAIN, granted=(grant,), ack=99)

    assert instructions == Instructions(valid=False)
    assert state.term == 7


def test_directive_of_a_reply_is_returned(state: ReportState) -> None:
    _, instructions = exchange(state, RUNNING, 0.0, directive=Directive.DRAIN)

    assert instructions == Instructions(valid=True, directive=Directive.DRAIN)


def test_offer_for_a_free_slot_is_claimed_at_once(state: ReportState) -> None:
    free = WorkerSnapshot(WorkerState.STARTING)
    exchange(state, free, 0.0, offers=("a", "b"))
    state.claims.claim(1, 0.0)
    assert state.due_at(free) == -math.inf

    grant = Grant("a", "token", "{}")
    report, instructions = exchange(state, free, 0.01, granted=(grant,))

    assert report.claims == ("a",)
    assert instructions.grants == (grant,)


def test_answered_claim_is_not_urgent_again(state: ReportState) -> None:
    free = WorkerSnapshot(WorkerState.RUNNING)
    exchange(state, free, 0.0, offers=("a",))
    state.claims.claim(1, 0.5)
    exchange(state, free, 1.0, offers=("a",))

    assert state.due_at(free) == 31.0


def test_stopped_worker_reports_its_releases_at_once(state: ReportState) -> None:
    stopped = WorkerSnapshot(WorkerState.STOPPED, exit=ExitOutput(0))
    exchange(state, stopped, 0.0, granted=(Grant("a", "token", "{}"),))
    assert state.is_known(stopped)

    state.claims.concluded("a")
    assert (state.is_known(stopped), state.due_at(stopped)) == (False, -math.inf)

    report, _ = exchange(state, stopped, 0.1)
    assert report.released == ("a",)
    assert (state.is_known(stopped), state.due_at(stopped)) == (True, 30.1)


def test_events_are_sent_until_they_are_acknowledged(state: ReportState) -> None:
    state.record("worker:starting", 1.0)
    state.record("worker:running", 2.0)
    first, _ = exchange(state, RUNNING, 0.0, ack=1)
    second, _ = exchange(state, RUNNING, 30.0, ack=2)
    third, _ = exchange(state, RUNNING, 60.0, ack=2)

    assert [[event.name for event in report.events] for report in (first, second, third)] == [
        ["worker:starting", "worker:running"],
        ["worker:running"],
        [],
    ]


def test_full_buffer_drops_the_oldest_events_and_counts_them(state: ReportState) -> None:
    for number in range(MAX_BUFFERED_EVENTS + 3):
        state.record("polling:error", float(number))

    report = state.compose(RUNNING, now=0.0)

    assert (len(report.events), report.events[0].sequence, report.dropped_events) == (MAX_BUFFERED_EVENTS, 4, 3)


def test_sequence_grows_with_every_report(state: ReportState) -> None:
    state.compose(RUNNING, now=0.0)
    state.failed(now=0.0)

    assert state.compose(RUNNING, now=1.0).sequence == 2
