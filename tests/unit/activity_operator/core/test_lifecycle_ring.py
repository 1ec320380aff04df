"""Lifecycle events of workers: observations of the cluster, merged with the workers' own events."""

from datetime import UTC, datetime

import pytest

from activity_operator.api.status import EventRecord, ExitRecord
from activity_operator.core.lifecycle_ring import PodEvent, at_work, merge_events, pod_events, vanished_pods
from activity_operator.core.observation import PodFacts, WorkerFacts
from activity_worker.contract import WorkerState


def pod(**more: object) -> PodFacts:
    return PodFacts(**{"name": "p-1", "uid": "u1", "revision": "r", "phase": "Running", "created": 0.0, **more})  # type: ignore[arg-type]


def record(name: str, at: int, **more: object) -> EventRecord:
    return EventRecord(at=datetime.fromtimestamp(at, UTC), name=name, **more)  # type: ignore[arg-type]


OOM = {"last_exit_reason": "OOMKilled", "last_exit_code": 137}
STOPPED = PodEvent("worker:stopped", "killed by SIGKILL", "p-1", 137)


def test_killed_worker_is_recorded_once_as_stopped() -> None:
    ended = pod(**OOM)
    restarted = pod(**OOM, restarts=1, running_since=5.0)

    for killed in (ended, restarted):
        assert pod_events({"u1": pod()}, [killed]) == (PodEvent("OOMKilled", "exit code 137", "p-1"), STOPPED)
        assert pod_events({"u1": killed}, [killed]) == ()
    assert pod_events({"u1": ended}, [restarted]) == (), "one end was recorded twice: before and after the restart"


def test_new_leader_does_not_repeat_events_of_the_former_leader() -> None:
    killed = pod(last_exit_reason="Error", last_exit_code=137, restarts=1, running_since=5.0)
    recorded = record("worker:stopped", 4, message="killed by SIGKILL", worker="p-1", exit=ExitRecord(code=137))

    assert pod_events({}, [killed], [recorded]) == ()
    assert pod_events({}, [killed], [record("worker:stopped", 4, message="killed by SIGKILL", worker="p-2")]) == (
        STOPPED,
    )
    assert pod_events({"u1": pod()}, [killed], [recorded]) == (STOPPED,), (
        "a kill that this leader observed, after one that the former leader recorded"
    )


def test_second_kill_of_a_worker_is_recorded_again() -> None:
    first = pod(last_exit_reason="Error", last_exit_code=137, restarts=1, running_since=5.0)
    again = pod(last_exit_reason="Error", last_exit_code=137, restarts=1, waiting_reason="")
    after = pod(last_exit_reason="Error", last_exit_code=137, restarts=2, running_since=9.0)

    assert pod_events({"u1": first}, [again]) == pod_events({"u1": first}, [after]) == (STOPPED,)
    assert pod_events({"u1": again}, [after]) == ()


def test_exit_that_the_worker_reports_itself_is_not_recorded_here() -> None:
    errored = pod(last_exit_reason="Error", last_exit_code=10)

    assert pod_events({}, [pod(last_exit_reason="Completed", last_exit_code=0), errored]) == ()


def test_oom_kill_of_a_handler_is_not_recorded_as_killed_worker() -> None:
    assert pod_events({"u1": pod()}, [pod(last_exit_reason="OOMKilled", last_exit_code=0)]) == ()


def test_evicted_pod_is_recorded_for_any_exit_code() -> None:
    for code, message in ((None, ""), (0, "exit code 0")):
        evicted = pod(last_exit_reason="Evicted", last_exit_code=code, phase="Failed")
        assert pod_events({"u1": pod()}, [evicted]) == (PodEvent("Evicted", message, "p-1"),)


def test_vanished_pod_is_recorded_only_if_its_worker_was_at_work() -> None:
    before = {"u1": pod(running_since=5.0), "u2": pod(uid="u2", name="p-2", running_since=5.0)}

    (event,) = vanished_pods(before, {}, {"u1", "u9"})

    assert (event.name, event.pod, event.exit_code) == ("worker:stopped", "p-1", None)
    assert vanished_pods(before, before, {"u1"}) == ()


@pytest.mark.parametrize(
    ("state", "busy", "lost"),
    [("running", 0, True), ("draining", 1, True), ("stopping", 1, True), ("stopping", 0, False), ("stopped", 0, False)],
)
def test_worker_is_at_work_until_it_stops_or_has_no_task_left(state: str, busy: int, lost: bool) -> None:
    worker = WorkerFacts("u1", "i", WorkerState(state), 1, busy, 0, 0.0, 9.0, 1.0)

    assert at_work(worker) is lost


def test_end_observed_before_pod_vanishes_is_recorded_once() -> None:
    ended = pod(last_exit_reason="Error", last_exit_code=137)

    assert vanished_pods({"u1": ended}, {}, {"u1"}) == ()


def test_image_pull_failure_is_recorded_with_its_message() -> None:
    stuck = pod(waiting_reason="ImagePullBackOff", waiting_message="no such image")

    assert pod_events({}, [stuck]) == (PodEvent("ImagePullBackOff", "no such image", "p-1"),)
    assert pod_events({"u1": stuck}, [stuck]) == ()


def test_container_creation_is_not_recorded() -> None:
    assert pod_events({}, [pod(waiting_reason="ContainerCreating"), pod(waiting_reason="PodInitializing")]) == ()


def test_unschedulable_pod_is_recorded_once() -> None:
    stuck = pod(unschedulable="0/3 nodes are available")
    longer = pod(unschedulable="0/4 nodes are available")

    assert pod_events({}, [stuck])[0].name == "Unschedulable"
    assert pod_events({"u1": stuck}, [longer]) == ()


def test_equal_events_add_to_the_count_of_the_former_leader() -> None:
    before = record("worker:running", 10, count=3)
    since = record("worker:running", 20, count=2)

    ring = merge_events([before], [since])

    assert [(item.count, item.at.timestamp()) for item in ring] == [(5, 20.0)]


def test_merging_again_changes_nothing() -> None:
    before, since = [record("worker:running", 10)], [record("worker:stopped", 20)]

    assert merge_events(before, since) == merge_events(before, since)


def test_different_exit_codes_are_different_events() -> None:
    good = record("worker:stopped", 10, exit=ExitRecord(code=0))
    bad = record("worker:stopped", 11, exit=ExitRecord(code=10))

    assert len(merge_events([], [good, bad])) == 2


LIFE = ("worker:starting", "worker:running", "worker:stopping", "worker:stopped")


def lives(workers: int) -> list[EventRecord]:
    """Return the events of workers that start together, run together, and end one second after the other."""
    return [
        record(name, 100 * step + number, worker=f"p-{number:02}")
        for step, name in enumerate(LIFE)
        for number in range(workers)
    ]


def test_equal_events_of_two_workers_are_two_entries() -> None:
    ring = merge_events([record("worker:running", 10, worker="p-1")], [record("worker:running", 20, worker="p-2")])

    assert [(item.worker, item.count) for item in ring] == [("p-1", 1), ("p-2", 1)]


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_lives_of_twelve_workers_read_as_twelve(steps: int) -> None:
    events = lives(12)[: 12 * steps]

    last = {item.worker: (item.name, item.at) for item in merge_events([], events)}

    assert last == {item.worker: (item.name, item.at) for item in events[-12:]}


def test_full_ring_is_the_same_in_every_split_between_leaders() -> None:
    events = lives(12)

    for taken in range(0, len(events), 7):
        ring = merge_events(merge_events([], events[:taken]), events[taken:])
        assert {item.worker for item in ring if item.name == "worker:stopped"} == {f"p-{n:02}" for n in range(12)}


def test_rare_event_outlives_the_usual_ones() -> None:
    killed = record("OOMKilled", 1, worker="p-x")

    ring = merge_events([killed], [record("worker:running", 10 + number, worker=f"p-{number}") for number in range(30)])

    assert ring[0] == killed
    assert [item.worker for item in ring[1:]] == [f"p-{number}" for number in range(11, 30)]


def test_status_of_a_full_ring_is_small() -> None:
    ring = merge_events(
        [], [record("polling:error", n, worker="p" * 253, message=(str(n) + "m" * 256)[:256]) for n in range(99)]
    )

    assert sum(len(item.model_dump_json()) for item in ring) < 16_384


def test_only_the_last_twenty_are_kept() -> None:
    ring = merge_events([], [record(f"e{number}", number) for number in range(30)])

    assert [item.name for item in ring] == [f"e{number}" for number in range(10, 30)]
