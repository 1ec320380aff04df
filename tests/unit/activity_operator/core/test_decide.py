"""One pool from start to end in virtual time."""

from activity_operator.core.decision import SentinelOrder
from activity_operator.core.fleet import DRAINED_COST
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import SourceFacts
from activity_worker.contract import Directive
from tests.unit.activity_operator.core.builders import counted
from tests.unit.activity_operator.core.pool_harness import START, PoolHarness, pool_spec


def proven_at_zero(**changes: object) -> PoolHarness:
    """Return a pool at zero whose revision has had a worker report."""
    harness = PoolHarness(pool_spec(**changes), proven=True)
    harness.settle()
    return harness


def with_workers(number: int, **changes: object) -> PoolHarness:
    """Return a pool whose `minWorkers` workers run."""
    harness = proven_at_zero(minWorkers=number, **changes)
    harness.run(10)
    assert len(harness.serving()) == number
    return harness


def of_revision(harness: PoolHarness, revision: str) -> list[str]:
    """Return the names of a revision's pods."""
    return [name for name, pod in harness.pods.items() if pod.facts.revision == revision]


def test_pool_at_zero_has_a_deployment_and_no_further_actions() -> None:
    harness = proven_at_zero()

    decision = harness.settle()

    assert [(d.replicas, d.rendered_generation) for d in harness.truth.deployments.values()] == [(0, 1)]
    assert decision.actions == ()
    assert decision.look_again_in is None
    assert decision.sentinel == SentinelOrder(2, 10, preflight=True)


def test_sentinel_polls_grow_with_held_tasks() -> None:
    harness = proven_at_zero()
    polls = []
    for held in (0, 1, 2, 4, 8, 9, 10):
        harness.know(SourceFacts(held=held))
        polls.append(harness.settle().sentinel.polls)

    assert polls == [2, 2, 4, 6, 2, 1, 0]


def test_pool_with_unproven_revision_takes_exactly_one_lease() -> None:
    harness = PoolHarness(pool_spec())

    assert harness.settle().sentinel == SentinelOrder(1, 1, preflight=True)

    harness.know(SourceFacts(held=1))
    decision = harness.settle()

    assert decision.size.desired == 1
    assert decision.sentinel.polls == 0


def test_burst_on_proven_pool_gets_its_full_size_at_once() -> None:
    harness = proven_at_zero()
    harness.know(SourceFacts(held=10))

    assert harness.settle().size.desired == harness.replicas == 10


def test_max_workers_holds_for_any_backlog() -> None:
    harness = proven_at_zero(maxWorkers=3)
    harness.know(SourceFacts(held=2, counts=counted(50, now=START)))

    decision = harness.settle()

    assert (decision.size.desired, decision.size.limit) == (3, "max")


def test_saturation_doubles_up_to_max_once_per_start() -> None:
    harness = proven_at_zero(minWorkers=1, activation={"mode": "None"})
    harness.settle()
    sizes = set()
    for _ in range(60):
        harness.run(1)
        harness.occupy(*(pod.facts.name for pod in harness.serving()))
        sizes.add(harness.replicas)

    assert sizes == {1, 2, 4, 8, 10}


def test_one_task_at_a_time_on_the_newest_worker_does_not_double_the_pool() -> None:
    harness = with_workers(1, activation={"mode": "None"})
    sizes = []
    for _ in range(60):
        harness.occupy(harness.serving()[-1].facts.name)
        sizes.append(harness.run(1).size.desired)
        harness.free()
        sizes.append(harness.run(0.25).size.desired)

    assert max(sizes) == 2


def test_pool_shrinks_on_time_with_rare_reports() -> None:
    harness = proven_at_zero(scaling={"scaleDown": {"stabilizationWindowSeconds": 60, "zeroAfterSeconds": 300}})
    harness.know(SourceFacts(held=4))
    harness.settle()
    harness.know(SourceFacts())
    harness.run(10)
    for pod in harness.serving():
        assert pod.process is not None
        pod.process.report_at += 31.0

    harness.run(49)
    assert harness.settle().size.desired == 4
    harness.run(3)
    assert harness.settle().size.desired == 1
    harness.run(235)
    assert harness.settle().size.desired == 1
    harness.run(15)
    assert harness.settle().size.desired == 0


def test_pool_without_work_goes_to_zero_without_interrupting_workers() -> None:
    harness = proven_at_zero()
    harness.truth.arrive(6, seconds=5)
    harness.truth.arrive(4, seconds=200)
    harness.run(150)

    assert len(harness.pods) == 4  # the busy ones: the operator's polls detect new work

    harness.run(250)
    assert len(harness.pods) == 1
    harness.run(300)

    assert (harness.pods, harness.truth.taken) == ({}, [])
    assert harness.settle().sentinel.polls == 2


def test_cordoned_worker_is_uncordoned_when_work_returns() -> None:
    harness = with_workers(4)
    names = set(harness.pods)
    harness.occupy(*names)
    harness.edit(minWorkers=0, replicas=2)
    harness.run(5)
    assert len(harness.serving()) == 2

    harness.edit(replicas=4)
    harness.run(5)

    assert {pod.facts.name for pod in harness.serving()} == names


def test_worker_of_deleting_pod_gets_drain_directive() -> None:
    """The directive drains the worker even if SIGTERM is lost."""
    harness = with_workers(1)
    (name,) = harness.pods
    harness.occupy(name)
    harness.truth.delete(name, "somebody")

    assert harness.settle().directives[harness.truth.pods[name].facts.uid] is Directive.DRAIN


def test_worker_that_drained_while_being_uncordoned_is_removed() -> None:
    harness = with_workers(1)
    (name,) = harness.pods
    harness.drain_by_itself(name)
    harness.run(15)

    assert name not in harness.pods
    assert len(harness.serving()) == 1


def test_new_workers_are_not_removed_instead_of_drained_ones() -> None:
    for most in (2, 3):
        harness = with_workers(2, maxWorkers=most)
        for name in list(harness.pods):
            harness.drain_by_itself(name)
            harness.truth.set_cost(name, DRAINED_COST)
        before = harness.truth.made
        harness.run(40)

        assert len(harness.serving()) == 2
        assert harness.truth.made == before + 2, "a new pod was removed before it had started"


def test_paused_pool_lets_workers_finish_and_takes_no_new_task() -> None:
    harness = with_workers(2)
    first = next(iter(harness.pods))
    harness.occupy(first)
    harness.edit(paused=True)
    decision = harness.run(80)

    assert list(harness.pods) == [first]
    assert decision.sentinel.polls == 0

    harness.free()
    harness.run(10)
    assert (harness.pods, harness.truth.taken) == ({}, [])

    harness.edit(paused=False)
    harness.run(10)
    assert len(harness.serving()) == 2


def test_rollout_replaces_workers_without_interrupting_tasks() -> None:
    harness = with_workers(4)
    old = revision_of(harness.spec)
    busy = list(harness.pods)[:2]
    harness.occupy(*busy)
    harness.edit(handlerImage="h:2")
    new = revision_of(harness.spec)
    harness.run(150)

    assert of_revision(harness, old) == busy
    assert len(of_revision(harness, new)) >= 3

    harness.free()
    harness.run(150)
    assert {pod.facts.revision for pod in harness.pods.values()} == {new}
    assert [d.revision for d in harness.truth.deployments.values()] == [new]
    assert harness.truth.taken == []


def test_rollout_never_exceeds_size_plus_surge() -> None:
    harness = with_workers(8, maxWorkers=8)
    harness.edit(handlerImage="h:2")
    for _ in range(400):
        harness.run(1)
        assert len(harness.pods) <= 10
        assert len(harness.serving()) >= 6

    assert {pod.facts.revision for pod in harness.pods.values()} == {revision_of(harness.spec)}


def test_broken_image_leaves_the_old_revision_serving() -> None:
    harness = with_workers(3)
    old = revision_of(harness.spec)
    harness.truth.unpullable.add("h:broken")
    harness.edit(handlerImage="h:broken")
    decision = harness.run(200)

    assert len(of_revision(harness, old)) == len(harness.serving()) == 3
    assert len(harness.pods) == 4
    assert decision.memory.breaker.reason == "ImagePullFailed"
    assert harness.warnings == ["ImagePullFailed"]

    harness.truth.unpullable.clear()
    harness.run(300)
    assert {pod.facts.revision for pod in harness.pods.values()} == {revision_of(harness.spec)}


def test_return_to_the_old_image_ends_the_rollout() -> None:
    harness = with_workers(2)
    old = revision_of(harness.spec)
    harness.truth.unpullable.add("h:broken")
    harness.edit(handlerImage="h:broken")
    harness.run(10)
    harness.edit(handlerImage="h:1")
    decision = harness.run(10)

    assert [pod.facts.revision for pod in harness.pods.values()] == [old, old]
    assert not decision.memory.breaker.open
    assert len(harness.truth.deployments) == 1


def test_broken_pool_at_zero_keeps_one_retry_pod_and_stops_polling() -> None:
    harness = PoolHarness(pool_spec())
    harness.truth.unpullable.add("h:1")
    harness.truth.arrive(1, seconds=1)
    decision = harness.run(30)

    assert decision.size.limit in {"breaker", "demand", "held"}
    assert len(harness.pods) == 1
    assert decision.sentinel.polls == 0


def test_silent_ready_worker_keeps_the_pool_above_zero() -> None:
    harness = with_workers(1)
    harness.edit(minWorkers=0)
    (pod,) = harness.pods.values()
    pod.cut = True
    harness.run(600)

    assert len(harness.pods) == 1
    assert "WorkerStalled" in harness.warnings


def test_silent_and_unready_worker_is_replaced_at_the_deadline() -> None:
    harness = with_workers(1)
    (lost,) = harness.pods
    harness.pods[lost].cut = True
    harness.truth.lose_node(lost)
    harness.run(290)
    assert lost in harness.pods

    harness.run(20)
    assert lost not in harness.pods
    assert len(harness.serving()) == 1
