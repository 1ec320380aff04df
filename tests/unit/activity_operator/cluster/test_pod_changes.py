"""The changes of a pool's pods between two observations: lifecycle events, lost workers, pods that are gone."""

from dataclasses import replace

from activity_operator.cluster.parsed_pool import ParsedPods
from activity_operator.cluster.pod_changes import PodChanges, pod_changes
from activity_operator.core.observation import PodFacts, WorkerFacts
from activity_worker.contract import WorkerState

POD = PodFacts("p-1", "u1", "r1", "Running", 100.0, ready=True, running_since=110.0)
WORKER = WorkerFacts("u1", "i", WorkerState.RUNNING, 1, 1, 0, 0.0, 150.0, 1.0)


def changes(before: PodFacts, after: PodFacts | None, worker: WorkerFacts = WORKER) -> PodChanges:
    """Return the changes of one pod; `after` is None for a pod that is gone."""
    return pod_changes(parsed(before), parsed(after), [worker], ())


def parsed(pod: PodFacts | None) -> ParsedPods:
    return ParsedPods() if pod is None else ParsedPods(({},), (pod,), {pod.uid: pod})


def test_unchanged_pods_have_no_changes() -> None:
    assert changes(POD, POD) == PodChanges(parsed(POD))


def test_busy_pod_that_vanishes_is_a_lost_worker() -> None:
    found = changes(POD, None)

    assert (found.gone, found.lost) == (frozenset({"u1"}), ("gone",))
    assert [event.pod for event in found.events] == ["p-1"]


def test_drained_pod_that_vanishes_is_no_lost_worker() -> None:
    found = changes(POD, None, replace(WORKER, state=WorkerState.DRAINED, busy=0))

    assert (found.gone, found.lost, found.events) == (frozenset({"u1"}), (), ())


def test_worker_killed_for_its_memory_is_lost_once() -> None:
    killed = replace(POD, last_exit_reason="OOMKilled", last_exit_code=137, restarts=1)

    assert changes(POD, killed).lost == ("oom",)
    assert changes(killed, None).lost == ()
