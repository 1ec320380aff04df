"""A node that is not Ready with busy pods on it: to Kubernetes they are unready, but they work on, and none pays."""

from collections.abc import Iterable
from dataclasses import replace

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
    assert sum(load.world.busy.values()) == tasks
    return load


def lose_node(load: Load, names: Iterable[str] = ()) -> None:
    """Let these pods, or all that are there, be on a node of which the kubelet says nothing any more."""
    world = load.world
    world.unready.update(names or world.pods)
    world.pods.update({name: replace(world.pods[name], ready=False) for name in world.unready})


def evict(load: Load) -> set[str]:
    """Delete the pods of the node, as the taint manager does; nobody carries it out. Returns their names."""
    world, gone = load.world, set(load.world.unready)
    for name in gone:
        world.pods[name] = replace(world.pods[name], deleting=True)
    for name in world.deployments:
        world._reconcile_pods(name)
    return gone


def test_busy_workers_on_a_node_that_is_not_ready_are_neither_deleted_nor_replaced() -> None:
    load = at_work(5)
    before = dict.fromkeys(load.world.pods)
    lose_node(load)
    load.sizes.clear()
    load.replicas.clear()
    load.run(600)

    assert dict.fromkeys(load.world.pods) == before
    assert (set(load.sizes), set(load.replicas)) == ({5}, {5})
    assert not [said for said in load.world.events if said.kind == "Warning"]


def test_a_pool_shrinks_there_by_those_who_have_nothing_to_do_and_by_nobody_else() -> None:
    load = at_work(3, minWorkers=6)
    busy = {name for name, tasks in load.world.busy.items() if tasks}
    lose_node(load)
    load.world.edit(minWorkers=0)
    load.run(60)

    assert set(load.world.pods) == busy
    assert load.world.killed_busy == []


def test_busy_workers_there_do_not_go_in_the_stead_of_idle_ones_elsewhere() -> None:
    """A ReplicaSet removes the unready first: replicas must not fall before the idle ones are unready, too."""
    load = at_work(3, minWorkers=6)
    busy = {name for name, tasks in load.world.busy.items() if tasks}
    lose_node(load, busy)
    load.world.edit(minWorkers=0)
    load.run(60)

    assert set(load.world.pods) == busy
    assert load.world.killed_busy == []


def test_what_runs_there_counts_when_tasks_come_and_the_new_ones_start_elsewhere() -> None:
    load = at_work(3, maxWorkers=5)
    lose_node(load)
    load.arrive(10)
    load.run(30)

    assert len(load.world.pods) == 5
    assert sum(load.world.busy.values()) == 5
    assert max(load.replicas) == 5


def test_a_busy_worker_that_is_evicted_there_finishes_and_takes_nothing_more() -> None:
    load = at_work(3, maxWorkers=3)
    lose_node(load)
    gone = evict(load)
    load.arrive(3)
    load.run(10)
    decision = load.world.look()

    assert {decision.directives[load.world.pods[name].uid] for name in gone} == {Directive.DRAIN}
    assert not [action for action in decision.actions if isinstance(action, DeletePod | SetReplicas)]
    assert len(load.world.serving()) == 3, "the pods in their place are the pool now"
    assert max(load.replicas) == 3
    load.run(LONG)
    states = {load.world.workers[load.world.pods[name].uid].state for name in gone}
    assert (states, load.done, load.world.killed_busy) == ({WorkerState.DRAINED}, 6, [])


def test_a_worker_that_is_cut_off_with_its_node_is_given_up_after_the_deadline_and_gracefully() -> None:
    load = at_work(2)
    lose_node(load)
    (lost, kept) = sorted(load.world.pods)
    load.world.silent.add(lost)
    since = load.world.now
    while lost in load.world.pods and load.world.now < since + 400:
        load.run(1)

    assert load.world.now - since >= load.world.spec.stalled.deadline_seconds - 2
    assert [said.reason for said in load.world.events if said.kind == "Warning"][-1] == "StalledWorkerDeleted"
    assert lost not in load.world.pods
    assert kept in load.world.pods
