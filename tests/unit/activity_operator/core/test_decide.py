"""One pool from start to end in virtual time."""

from activity_operator.core.decision import SentinelOrder
from activity_operator.core.fleet import DRAINED_COST
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import SourceFacts
from activity_worker.contract import Directive
from tests.unit.activity_operator.core.builders import counted
from tests.unit.activity_operator.core.world import START, World, pool_spec


def proven_at_zero(**changes: object) -> World:
    """Return a pool at zero whose revision has had a worker report."""
    world = World(pool_spec(**changes), proven=True)
    world.settle()
    return world


def with_workers(number: int, **changes: object) -> World:
    """Return a pool whose `minWorkers` workers run."""
    world = proven_at_zero(minWorkers=number, **changes)
    world.run(10)
    assert len(world.serving()) == number
    return world


def of_revision(world: World, revision: str) -> list[str]:
    """Return the names of a revision's pods."""
    return [name for name, pod in world.pods.items() if pod.facts.revision == revision]


def test_pool_at_zero_has_a_deployment_and_no_further_actions() -> None:
    world = proven_at_zero()

    decision = world.settle()

    assert [(d.replicas, d.rendered_generation) for d in world.truth.deployments.values()] == [(0, 1)]
    assert decision.actions == ()
    assert decision.look_again_in is None
    assert decision.sentinel == SentinelOrder(2, 10, preflight=True)


def test_sentinel_polls_grow_with_held_tasks() -> None:
    world = proven_at_zero()
    polls = []
    for held in (0, 1, 2, 4, 8, 9, 10):
        world.know(SourceFacts(held=held))
        polls.append(world.settle().sentinel.polls)

    assert polls == [2, 2, 4, 6, 2, 1, 0]


def test_pool_with_unproven_revision_takes_exactly_one_lease() -> None:
    world = World(pool_spec())

    assert world.settle().sentinel == SentinelOrder(1, 1, preflight=True)

    world.know(SourceFacts(held=1))
    decision = world.settle()

    assert decision.size.desired == 1
    assert decision.sentinel.polls == 0


def test_burst_on_proven_pool_gets_its_full_size_at_once() -> None:
    world = proven_at_zero()
    world.know(SourceFacts(held=10))

    assert world.settle().size.desired == world.replicas == 10


def test_max_workers_holds_for_any_backlog() -> None:
    world = proven_at_zero(maxWorkers=3)
    world.know(SourceFacts(held=2, counts=counted(50, now=START)))

    decision = world.settle()

    assert (decision.size.desired, decision.size.limit) == (3, "max")


def test_saturation_doubles_up_to_max_once_per_start() -> None:
    world = proven_at_zero(minWorkers=1, activation={"mode": "None"})
    world.settle()
    sizes = set()
    for _ in range(60):
        world.run(1)
        world.occupy(*(pod.facts.name for pod in world.serving()))
        sizes.add(world.replicas)

    assert sizes == {1, 2, 4, 8, 10}


def test_one_task_at_a_time_on_the_newest_worker_does_not_double_the_pool() -> None:
    world = with_workers(1, activation={"mode": "None"})
    sizes = []
    for _ in range(60):
        world.occupy(world.serving()[-1].facts.name)
        sizes.append(world.run(1).size.desired)
        world.free()
        sizes.append(world.run(0.25).size.desired)

    assert max(sizes) == 2


def test_pool_shrinks_on_time_with_rare_reports() -> None:
    world = proven_at_zero(scaling={"scaleDown": {"stabilizationWindowSeconds": 60, "zeroAfterSeconds": 300}})
    world.know(SourceFacts(held=4))
    world.settle()
    world.know(SourceFacts())
    world.run(10)
    for pod in world.serving():
        assert pod.process is not None
        pod.process.report_at += 31.0

    world.run(49)
    assert world.settle().size.desired == 4
    world.run(3)
    assert world.settle().size.desired == 1
    world.run(235)
    assert world.settle().size.desired == 1
    world.run(15)
    assert world.settle().size.desired == 0


def test_pool_without_work_goes_to_zero_without_interrupting_workers() -> None:
    world = proven_at_zero()
    world.truth.arrive(6, seconds=5)
    world.truth.arrive(4, seconds=200)
    world.run(150)

    assert len(world.pods) == 4  # the busy ones: the operator's polls detect new work

    world.run(250)
    assert len(world.pods) == 1
    world.run(300)

    assert (world.pods, world.truth.taken) == ({}, [])
    assert world.settle().sentinel.polls == 2


def test_cordoned_worker_is_uncordoned_when_work_returns() -> None:
    world = with_workers(4)
    names = set(world.pods)
    world.occupy(*names)
    world.edit(minWorkers=0, replicas=2)
    world.run(5)
    assert len(world.serving()) == 2

    world.edit(replicas=4)
    world.run(5)

    assert {pod.facts.name for pod in world.serving()} == names


def test_worker_of_deleting_pod_gets_drain_directive() -> None:
    """The directive drains the worker even if SIGTERM is lost."""
    world = with_workers(1)
    (name,) = world.pods
    world.occupy(name)
    world.truth.delete(name, "somebody")

    assert world.settle().directives[world.truth.pods[name].facts.uid] is Directive.DRAIN


def test_worker_that_drained_while_being_uncordoned_is_removed() -> None:
    world = with_workers(1)
    (name,) = world.pods
    world.drain_by_itself(name)
    world.run(15)

    assert name not in world.pods
    assert len(world.serving()) == 1


def test_new_workers_are_not_removed_instead_of_drained_ones() -> None:
    for most in (2, 3):
        world = with_workers(2, maxWorkers=most)
        for name in list(world.pods):
            world.drain_by_itself(name)
            world.truth.set_cost(name, DRAINED_COST)
        before = world.truth.made
        world.run(40)

        assert len(world.serving()) == 2
        assert world.truth.made == before + 2, "a new pod was removed before it had started"


def test_paused_pool_lets_workers_finish_and_takes_no_new_task() -> None:
    world = with_workers(2)
    first = next(iter(world.pods))
    world.occupy(first)
    world.edit(paused=True)
    decision = world.run(80)

    assert list(world.pods) == [first]
    assert decision.sentinel.polls == 0

    world.free()
    world.run(10)
    assert (world.pods, world.truth.taken) == ({}, [])

    world.edit(paused=False)
    world.run(10)
    assert len(world.serving()) == 2


def test_rollout_replaces_workers_without_interrupting_tasks() -> None:
    world = with_workers(4)
    old = revision_of(world.spec)
    busy = list(world.pods)[:2]
    world.occupy(*busy)
    world.edit(handlerImage="h:2")
    new = revision_of(world.spec)
    world.run(150)

    assert of_revision(world, old) == busy
    assert len(of_revision(world, new)) >= 3

    world.free()
    world.run(150)
    assert {pod.facts.revision for pod in world.pods.values()} == {new}
    assert [d.revision for d in world.truth.deployments.values()] == [new]
    assert world.truth.taken == []


def test_rollout_never_exceeds_size_plus_surge() -> None:
    world = with_workers(8, maxWorkers=8)
    world.edit(handlerImage="h:2")
    for _ in range(400):
        world.run(1)
        assert len(world.pods) <= 10
        assert len(world.serving()) >= 6

    assert {pod.facts.revision for pod in world.pods.values()} == {revision_of(world.spec)}


def test_broken_image_leaves_the_old_revision_serving() -> None:
    world = with_workers(3)
    old = revision_of(world.spec)
    world.truth.unpullable.add("h:broken")
    world.edit(handlerImage="h:broken")
    decision = world.run(200)

    assert len(of_revision(world, old)) == len(world.serving()) == 3
    assert len(world.pods) == 4
    assert decision.memory.breaker.reason == "ImagePullFailed"
    assert world.warnings == ["ImagePullFailed"]

    world.truth.unpullable.clear()
    world.run(300)
    assert {pod.facts.revision for pod in world.pods.values()} == {revision_of(world.spec)}


def test_return_to_the_old_image_ends_the_rollout() -> None:
    world = with_workers(2)
    old = revision_of(world.spec)
    world.truth.unpullable.add("h:broken")
    world.edit(handlerImage="h:broken")
    world.run(10)
    world.edit(handlerImage="h:1")
    decision = world.run(10)

    assert [pod.facts.revision for pod in world.pods.values()] == [old, old]
    assert not decision.memory.breaker.open
    assert len(world.truth.deployments) == 1


def test_broken_pool_at_zero_keeps_one_retry_pod_and_stops_polling() -> None:
    world = World(pool_spec())
    world.truth.unpullable.add("h:1")
    world.truth.arrive(1, seconds=1)
    decision = world.run(30)

    assert decision.size.limit in {"breaker", "demand", "held"}
    assert len(world.pods) == 1
    assert decision.sentinel.polls == 0


def test_silent_ready_worker_keeps_the_pool_above_zero() -> None:
    world = with_workers(1)
    world.edit(minWorkers=0)
    (pod,) = world.pods.values()
    pod.cut = True
    world.run(600)

    assert len(world.pods) == 1
    assert "WorkerStalled" in world.warnings


def test_silent_and_unready_worker_is_replaced_at_the_deadline() -> None:
    world = with_workers(1)
    (lost,) = world.pods
    world.pods[lost].cut = True
    world.truth.lose_node(lost)
    world.run(290)
    assert lost in world.pods

    world.run(20)
    assert lost not in world.pods
    assert len(world.serving()) == 1
