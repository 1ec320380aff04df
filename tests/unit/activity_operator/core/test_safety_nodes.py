"""A node that is not Ready with busy pods on it: to Kubernetes they are unready, but they work on, and none pays."""

from collections.abc import Iterable

from activity_operator.core.decision import DeletePod, SetReplicas
from activity_worker.contract import Directive, WorkerState
from tests.unit.activity_operator.core.load import Load, load_of

#: Far longer than any grace, tolerationSeconds or stalled.deadlineSeconds by default.
LONG = 1000.0


def at_work(tasks: int, **changes: object) -> Load:
    """Return a pool whose workers have a long task each, after its windows have passed."""
    load = load_of("counted", window=5, zero_after=5, **changes)
    load.seconds = LONG
    load.arrive(tasks)
    load.run(20)
    assert len(load.world.busy()) == tasks
    return load


def lose_node(load: Load, names: Iterable[str] = ()) -> None:
    """Let these pods, or all that are there, be on a node of which the kubelet says nothing any more."""
    for name in names or list(load.world.pods):
        load.world.truth.lose_node(name)


def evict(load: Load) -> set[str]:
    """Delete the pods of the node, as the taint manager does; nobody carries it out. Returns their names."""
    gone = {name for name, pod in load.world.truth.pods.items() if pod.lost_node}
    for name in gone:
        load.world.truth.evict(name)
    return gone


def test_busy_workers_on_a_node_that_is_not_ready_are_neither_deleted_nor_replaced() -> None:
    load = at_work(5)
    before = set(load.world.pods)
    lose_node(load)
    load.sizes.clear()
    load.replicas.clear()
    load.run(600)

    assert set(load.world.pods) == before
    assert (set(load.sizes), set(load.replicas)) == ({5}, {5})
    assert load.world.warnings == []


def test_a_pool_shrinks_there_by_those_who_have_nothing_to_do_and_by_nobody_else() -> None:
    load = at_work(3, minWorkers=6)
    busy = load.world.busy()
    lose_node(load)
    load.world.edit(minWorkers=0)
    load.run(60)

    assert set(load.world.pods) == busy
    assert load.world.truth.taken == []


def test_busy_workers_there_do_not_go_in_the_stead_of_idle_ones_elsewhere() -> None:
    """A ReplicaSet removes the unready first: replicas must not fall before the idle ones are unready, too."""
    load = at_work(3, minWorkers=6)
    busy = load.world.busy()
    lose_node(load, busy)
    load.world.edit(minWorkers=0)
    load.run(60)

    assert set(load.world.pods) == busy
    assert load.world.truth.taken == []


def test_what_runs_there_counts_when_tasks_come_and_the_new_ones_start_elsewhere() -> None:
    load = at_work(3, maxWorkers=5)
    lose_node(load)
    load.arrive(10)
    load.run(30)

    assert len(load.world.pods) == len(load.world.busy()) == 5
    assert max(load.replicas) == 5


def test_a_busy_worker_that_is_evicted_there_finishes_and_takes_nothing_more() -> None:
    load = at_work(3, maxWorkers=3)
    lose_node(load)
    gone = evict(load)
    load.arrive(3)
    load.run(10)
    decision, pods = load.world.settle(), load.world.truth.pods

    assert {decision.directives[pods[name].facts.uid] for name in gone} == {Directive.DRAIN}
    assert not [action for action in decision.actions if isinstance(action, DeletePod | SetReplicas)]
    assert len(load.world.serving()) == 3, "the pods in their place are the pool now"
    assert max(load.replicas) == 3
    load.run(LONG)
    states = {process.state for name in gone if (process := pods[name].process) is not None}
    assert (states, load.left, load.world.truth.taken) == ({WorkerState.DRAINED}, 0, [])


def test_a_worker_that_is_cut_off_with_its_node_is_given_up_after_the_deadline_and_gracefully() -> None:
    load = at_work(2)
    lose_node(load)
    (lost, kept) = sorted(load.world.pods)
    load.world.pods[lost].cut = True
    since = load.world.now
    while lost in load.world.pods and load.world.now < since + 400:
        load.run(1)

    assert load.world.now - since >= load.world.spec.stalled.deadline_seconds - 2
    assert load.world.warnings[-1] == "StalledWorkerDeleted"
    assert lost not in load.world.pods
    assert kept in load.world.pods
