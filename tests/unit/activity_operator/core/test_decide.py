"""Whole stories of one pool, told in virtual time."""

from dataclasses import replace

from activity_operator.core.decision import ApplyRevision, Say, SentinelOrder, SetReplicas
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import SourceFacts
from activity_worker.contract import Directive, WorkerState
from tests.unit.activity_operator.core.builders import counted
from tests.unit.activity_operator.core.world import START, World, pool_spec


def proven_at_zero(**changes: object) -> World:
    """Return a pool at zero whose revision has had a worker report."""
    world = World(pool_spec(**changes))
    world.memory = replace(world.memory, proven=frozenset({revision_of(world.spec)}))
    world.settle()
    return world


def test_a_pool_at_zero_has_its_deployment_and_rests() -> None:
    world = proven_at_zero()

    decision = world.settle()

    assert [(d.replicas, d.rendered_generation) for d in world.deployments.values()] == [(0, 1)]
    assert decision.actions == ()
    assert decision.look_again_in is None
    assert decision.sentinel == SentinelOrder(2, 10)


def test_polls_fan_out_with_the_tasks_that_come_so_that_one_task_leaves_few_open() -> None:
    world = proven_at_zero()
    polls = []
    for held in (0, 1, 2, 4, 8, 9, 10):
        world.source = replace(world.source, held=held)
        polls.append(world.settle().sentinel.polls)

    assert polls == [2, 2, 4, 6, 2, 1, 0]


def test_an_unproven_pool_holds_exactly_one_lease() -> None:
    world = World(pool_spec())

    assert world.settle().sentinel == SentinelOrder(1, 1)

    world.source = SourceFacts(held=1)
    decision = world.settle()

    assert decision.size.desired == 1
    assert decision.sentinel.polls == 0


def test_a_burst_on_a_proven_pool_gets_its_size_at_once() -> None:
    world = proven_at_zero()
    world.source = SourceFacts(held=10)

    decision = world.settle()

    assert decision.size.desired == 10
    assert [d.replicas for d in world.deployments.values()] == [10]


def test_max_holds_however_much_waits() -> None:
    world = proven_at_zero(maxWorkers=3)
    world.source = SourceFacts(held=2, signals=counted(50, now=START))

    decision = world.settle()

    assert (decision.size.desired, decision.size.limit) == (3, "max")


def test_saturation_doubles_up_to_max_once_per_start() -> None:
    world = proven_at_zero()
    world.source = SourceFacts(held=1)
    world.settle()
    world.source = SourceFacts()
    sizes = []
    for _ in range(40):
        world.run(0.5)
        for pod in world.pods.values():
            if pod.uid in world.workers:
                world.busy[pod.name] = 1
        sizes.append(sum(d.replicas for d in world.deployments.values()))

    assert sorted(set(sizes)) == [1, 2, 4, 8, 10]


def test_a_trickle_whose_next_task_goes_to_the_worker_that_has_just_come_is_not_doubled() -> None:
    world = proven_at_zero(minWorkers=1)
    world.run(5)
    sizes = []
    for _ in range(60):
        running = [pod for pod in world.pods.values() if pod.uid in world.workers]
        newest = running[-1]
        world.busy = {newest.name: 1}
        sizes.append(world.run(1.0, step=0.25).size.desired)
        world.busy = {}
        sizes.append(world.run(0.25, step=0.25).size.desired)

    assert max(sizes) == 2


def test_sizes_fall_on_time_though_reports_are_rare() -> None:
    world = proven_at_zero(scaling={"scaleDown": {"stabilizationWindowSeconds": 60, "zeroAfterSeconds": 300}})
    world.source = SourceFacts(held=4)
    world.settle()
    world.source = SourceFacts()
    world.run(3)

    world.follow(56, reports_every=31)
    assert len(world.serving()) == 4
    world.follow(3, reports_every=31)
    assert len(world.serving()) == 1
    world.follow(235, reports_every=31)
    assert len(world.serving()) == 1
    world.follow(10, reports_every=31)
    assert world.serving() == []


def test_another_operators_rendering_stays_until_the_pool_starts_from_zero() -> None:
    world = proven_at_zero()
    name, old = next(iter(world.deployments.items()))
    world.deployments[name] = replace(old, outdated=True)

    assert world.look().actions == ()

    world.source = SourceFacts(held=2)
    applied = [action for action in world.look().actions if isinstance(action, ApplyRevision)]
    assert [action.replicas for action in applied] == [2]

    world.deployments[name] = replace(world.deployments[name], outdated=True)
    world.source = SourceFacts(held=5)
    writes = [action for action in world.look().actions if not isinstance(action, Say)]
    assert [type(action) for action in writes] == [SetReplicas]


def test_a_pool_without_work_goes_to_zero_and_kills_nobody() -> None:
    world = proven_at_zero()
    world.source = SourceFacts(held=10)
    world.settle()
    world.source = SourceFacts()
    world.run(5)
    for pod in list(world.pods)[:4]:
        world.busy[pod] = 1
    world.run(70)

    assert world.killed_busy == []
    assert len(world.serving()) == 5  # four busy, and one free slot as the eye

    world.busy.clear()
    world.run(290)
    assert len(world.serving()) == 1
    world.run(60)

    assert world.pods == {}
    assert world.settle().sentinel.polls == 2


def test_a_cordoned_worker_is_called_back_when_work_returns() -> None:
    world = proven_at_zero()
    world.source = SourceFacts(held=4)
    world.settle()
    world.source = SourceFacts()
    world.run(4)
    names = list(world.pods)
    world.busy = dict.fromkeys(names, 1)
    world.edit(replicas=2)
    world.run(2)
    assert len(world.serving()) == 2

    world.edit(replicas=4)
    world.run(2)

    assert len(world.serving()) == 4
    assert sorted(world.pods) == sorted(names)
    assert {worker.state for worker in world.workers.values()} == {WorkerState.RUNNING}


def test_a_worker_whose_pod_is_being_deleted_is_told_to_drain_should_its_signal_be_lost() -> None:
    world = proven_at_zero(minWorkers=1)
    world.run(5)
    name, pod = next(iter(world.pods.items()))
    world.pods[name] = replace(pod, deleting=True)

    decision = world.look()

    assert decision.directives[pod.uid] is Directive.DRAIN


def test_a_worker_that_was_drained_just_as_it_was_called_back_goes_all_the_same() -> None:
    world = proven_at_zero(minWorkers=1)
    world.run(5)
    name, pod = next(iter(world.pods.items()))
    world.workers[pod.uid] = replace(world.workers[pod.uid], state=WorkerState.DRAINED)
    world.pods[name] = replace(pod, ready=False)
    world.run(10)

    assert name not in world.pods
    assert len(world.serving()) == 1


def test_new_workers_are_not_removed_in_place_of_drained_ones() -> None:
    for most in (2, 3):
        world = proven_at_zero(minWorkers=2, maxWorkers=most)
        world.run(5)
        for name, pod in list(world.pods.items()):
            world.workers[pod.uid] = replace(world.workers[pod.uid], state=WorkerState.DRAINED)
            world.pods[name] = replace(pod, ready=False, deletion_cost=-1000)
        before = world.made
        world.run(20)

        assert len(world.serving()) == 2
        assert world.made == before + 2, "each new pod was removed before it had started"


def test_a_pause_lets_workers_finish_and_takes_no_new_task() -> None:
    world = proven_at_zero(minWorkers=2)
    world.run(5)
    first = next(iter(world.pods))
    world.busy[first] = 1
    world.edit(paused=True)
    decision = world.run(10)

    assert list(world.pods) == [first]
    assert decision.sentinel.polls == 0

    world.busy.clear()
    world.run(5)
    assert world.pods == {}
    assert world.killed_busy == []

    world.edit(paused=False)
    world.run(5)
    assert len(world.serving()) == 2


def test_a_rollout_moves_workers_over_and_interrupts_nobody() -> None:
    world = proven_at_zero(minWorkers=4)
    world.run(5)
    old = revision_of(world.spec)
    busy = [pod.name for pod in world.pods.values()][:2]
    world.busy = dict.fromkeys(busy, 1)
    world.edit(handlerImage="h:2")
    new = revision_of(world.spec)
    world.run(30)

    assert sorted(pod.name for pod in world.pods.values() if pod.revision == old) == sorted(busy)
    assert len([pod for pod in world.serving() if pod.revision == new]) >= 3

    world.busy.clear()
    world.run(30)
    assert {pod.revision for pod in world.pods.values()} == {new}
    assert [d.revision for d in world.deployments.values()] == [new]
    assert world.killed_busy == []


def test_a_rollout_never_exceeds_size_plus_surge() -> None:
    world = proven_at_zero(minWorkers=8, maxWorkers=8)
    world.run(5)
    world.edit(handlerImage="h:2")
    most = 0
    for _ in range(120):
        world.run(0.5)
        most = max(most, len(world.pods))
        assert len([w for w in world.workers.values() if w.state is WorkerState.RUNNING]) >= 7

    assert most <= 10
    assert {pod.revision for pod in world.pods.values()} == {revision_of(world.spec)}


def test_a_broken_image_leaves_the_old_revision_serving() -> None:
    world = proven_at_zero(minWorkers=3)
    world.run(5)
    old = revision_of(world.spec)
    world.edit(handlerImage="h:broken")
    world.broken = {revision_of(world.spec)}
    world.run(200)

    assert len([pod for pod in world.serving() if pod.revision == old]) == 3
    assert len(world.pods) == 4
    assert world.memory.breaker.reason == "ImagePullFailed"
    assert [event.reason for event in world.events if event.kind == "Warning"] == ["ImagePullFailed"]

    world.broken = set()
    world.run(120)
    assert {pod.revision for pod in world.pods.values()} == {revision_of(world.spec)}


def test_a_way_back_to_the_old_image_ends_the_rollout() -> None:
    world = proven_at_zero(minWorkers=2)
    world.run(5)
    old = revision_of(world.spec)
    world.edit(handlerImage="h:broken")
    world.broken = {revision_of(world.spec)}
    world.run(10)
    world.edit(handlerImage="h:1")
    world.run(10)

    assert [pod.revision for pod in world.pods.values()] == [old, old]
    assert not world.memory.breaker.open
    assert len(world.deployments) == 1


def test_a_broken_pool_at_zero_keeps_one_try_and_stops_polling() -> None:
    world = World(pool_spec())
    world.broken = {revision_of(world.spec)}
    world.source = SourceFacts(held=1)
    decision = world.run(30)

    assert decision.size.limit in {"breaker", "demand", "held"}
    assert len(world.pods) == 1
    assert decision.sentinel.polls == 0


def test_a_silent_worker_blocks_zero_and_keeps_its_place() -> None:
    world = proven_at_zero()
    world.source = SourceFacts(held=1)
    world.settle()
    world.source = SourceFacts()
    world.run(5)
    world.silent = set(world.pods)
    world.run(600)

    assert len(world.pods) == 1
    assert any(event.reason == "WorkerStalled" for event in world.events)


def test_a_silent_and_unready_worker_is_replaced_at_the_deadline() -> None:
    world = proven_at_zero(minWorkers=1)
    world.run(5)
    lost = next(iter(world.pods))
    world.silent = {lost}
    world.pods[lost] = replace(world.pods[lost], ready=False)
    world.run(290)
    assert lost in world.pods

    world.run(20)
    assert lost not in world.pods
    assert len(world.serving()) == 1


def test_a_new_leader_shrinks_nothing_for_one_window() -> None:
    world = proven_at_zero(minWorkers=5)
    world.run(5)
    world.edit(minWorkers=1)
    world.memory = type(world.memory)()
    observe = world.observe
    world.observe = lambda: replace(observe(), leader_since=START + 5)  # type: ignore[method-assign]
    world.run(50)
    assert len(world.serving()) == 5

    world.run(30)
    assert len(world.serving()) == 1
