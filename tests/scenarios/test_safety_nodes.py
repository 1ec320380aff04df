"""Busy pods on a NotReady node: Kubernetes reports them unready, and their workers must not be interrupted."""

from collections.abc import Iterable

from activity_operator.core.decision import DeletePod, SetReplicas
from activity_operator.core.fleet import CORDON_COST
from activity_worker.contract import Directive, WorkerState
from tests.unit.activity_operator.core.load import Load, load_of

#: Longer than the defaults of every grace period, tolerationSeconds and stalled.deadlineSeconds.
LONG = 1000.0


def at_work(tasks: int, **changes: object) -> Load:
    """Return the load of a pool whose workers have one long task each, after the pool's windows have passed."""
    load = load_of("counted", window=5, zero_after=5, **changes)
    load.seconds = LONG
    load.arrive(tasks)
    load.run(20)
    assert len(load.harness.busy()) == tasks
    return load


def lose_node(load: Load, names: Iterable[str] = ()) -> None:
    """Make these pods, or all pods for an empty `names`, unready as on a node whose kubelet is silent."""
    for name in names or list(load.harness.pods):
        load.harness.truth.lose_node(name)


def test_missed_probe_of_cordoned_busy_worker_interrupts_nothing() -> None:
    load = at_work(3)
    harness = load.harness
    first = next(iter(harness.pods))
    process = harness.truth.pods[first].process
    assert process is not None
    process.tasks, process.idle_since = [], harness.now
    harness.truth.probes_fail = True
    harness.edit(replicas=1)
    load.run(200)

    assert (harness.truth.taken, first in harness.pods) == ([], False)
    assert sorted(pod.facts.deletion_cost or 0 for pod in harness.pods.values()) == [CORDON_COST, 0]


def evict(load: Load) -> set[str]:
    """Delete the pods of the node as the taint manager does, without a kubelet to stop them; return their names."""
    gone = {name for name, pod in load.harness.truth.pods.items() if pod.lost_node}
    for name in gone:
        load.harness.truth.evict(name)
    return gone


def test_busy_workers_on_not_ready_node_are_neither_deleted_nor_replaced() -> None:
    load = at_work(5)
    before = set(load.harness.pods)
    lose_node(load)
    load.sizes.clear()
    load.replicas.clear()
    load.run(600)

    assert set(load.harness.pods) == before
    assert (set(load.sizes), set(load.replicas)) == ({5}, {5})
    assert load.harness.warnings == []


def test_only_idle_workers_on_not_ready_node_are_removed() -> None:
    load = at_work(3, minWorkers=6)
    busy = load.harness.busy()
    lose_node(load)
    load.harness.edit(minWorkers=0)
    load.run(60)

    assert set(load.harness.pods) == busy
    assert load.harness.truth.taken == []


def test_busy_workers_on_not_ready_node_stay_when_idle_ones_are_removed() -> None:
    """A ReplicaSet removes unready pods first, so replicas must not fall before the idle workers are unready, too."""
    load = at_work(3, minWorkers=6)
    busy = load.harness.busy()
    lose_node(load, busy)
    load.harness.edit(minWorkers=0)
    load.run(60)

    assert set(load.harness.pods) == busy
    assert load.harness.truth.taken == []


def test_workers_on_not_ready_node_count_toward_max_workers() -> None:
    load = at_work(3, maxWorkers=5)
    lose_node(load)
    load.arrive(10)
    load.run(30)

    assert len(load.harness.pods) == len(load.harness.busy()) == 5
    assert max(load.replicas) == 5


def test_evicted_worker_on_not_ready_node_finishes_its_task_and_drains() -> None:
    load = at_work(3, maxWorkers=3)
    lose_node(load)
    gone = evict(load)
    load.arrive(3)
    load.run(10)
    decision, pods = load.harness.settle(), load.harness.truth.pods

    assert {decision.directives[pods[name].facts.uid] for name in gone} == {Directive.DRAIN}
    assert not [action for action in decision.actions if isinstance(action, DeletePod | SetReplicas)]
    assert len(load.harness.serving()) == 3, "the replacement pods serve"
    assert max(load.replicas) == 3
    load.run(LONG)
    states = {process.state for name in gone if (process := pods[name].process) is not None}
    assert (states, load.left, load.harness.truth.taken) == ({WorkerState.DRAINED}, 0, [])


def test_unreachable_worker_on_lost_node_is_deleted_after_the_deadline() -> None:
    load = at_work(2)
    lose_node(load)
    (lost, kept) = sorted(load.harness.pods)
    load.harness.pods[lost].cut = True
    since = load.harness.now
    while lost in load.harness.pods and load.harness.now < since + 400:
        load.run(1)

    assert load.harness.now - since >= load.harness.spec.stalled.deadline_seconds - 2
    assert load.harness.warnings[-1] == "StalledWorkerDeleted"
    assert lost not in load.harness.pods
    assert kept in load.harness.pods


def test_late_return_of_one_worker_after_an_outage_replaces_no_pod() -> None:
    """It finds the report path 40 s after the others, when it counts as stalled."""
    load = load_of("sentinel", minWorkers=4, maxWorkers=6, reports={"timeoutSeconds": 20})
    load.seconds = LONG
    load.arrive(1)
    load.run(100)
    (busy,), before = load.harness.busy(), set(load.harness.pods)
    _, _, late = sorted(before - {busy})
    load.sizes.clear()
    for name in before:
        load.harness.truth.pods[name].cut = True
    load.run(40)
    for wait, returning in ((5, {busy}), (35, before - {busy, late}), (100, {late})):
        for name in returning:
            load.harness.truth.pods[name].cut = False
        load.run(wait)

    assert set(load.harness.pods) == before
    assert set(load.sizes) == {4}
