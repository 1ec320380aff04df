"""An operator of another version renders other pods: running workers stay, and the change enters with new pods."""

from dataclasses import replace

import pytest

from activity_operator.core.decision import Action, ApplyRevision, EmitEvent
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import DeploymentFacts, SourceFacts
from tests.unit.activity_operator.core.world import World, pool_spec

EDITS: list[dict[str, object]] = [{"maxWorkers": 11}, {"replicas": 4}, {"replicas": 2}, {"minWorkers": 5}]


def with_workers(number: int, **changes: object) -> World:
    """Return a pool whose `minWorkers` workers run, one task each."""
    world = World(pool_spec(minWorkers=number, **changes), proven=True)
    world.run(10)
    world.occupy(*world.pods)
    return world


def deployment(world: World) -> DeploymentFacts:
    """Return the pool's only Deployment."""
    (found,) = world.truth.deployments.values()
    return found


def writes(world: World) -> list[Action]:
    """Return the writes of one decision, after they were carried out."""
    return [action for action in world.term.look()[2].actions if not isinstance(action, EmitEvent)]


@pytest.mark.parametrize("edit", EDITS, ids=str)
def test_edit_after_an_upgrade_replaces_no_worker(edit: dict[str, object]) -> None:
    world = with_workers(4)
    busy = set(world.pods)
    world.upgrade()
    world.edit(**edit)
    world.run(120)

    assert world.truth.taken == []
    assert busy <= set(world.truth.pods)
    assert deployment(world).rendered_generation == 2
    assert world.truth.rendered_by == {deployment(world).name: 1}


def test_new_pods_beside_running_ones_have_the_same_template() -> None:
    world = with_workers(2)
    world.upgrade()
    world.edit(minWorkers=3)

    assert [(type(one), getattr(one, "keeps_template", None)) for one in writes(world)] == [(ApplyRevision, True)]
    assert writes(world) == []
    world.run(10)
    assert (len(world.serving()), world.truth.rendered_by) == (3, {deployment(world).name: 1})


def test_repeated_writes_of_an_autoscaler_replace_no_worker() -> None:
    world = with_workers(3)
    busy = set(world.pods)
    world.upgrade()
    for replicas in (4, 3, 5, 3, 6):
        world.edit(replicas=replicas)
        world.run(15)

    assert world.truth.taken == []
    assert busy <= set(world.pods)
    assert set(world.truth.rendered_by.values()) == {1}


def test_new_image_after_an_upgrade_rolls_by_the_canary() -> None:
    world = with_workers(4, maxWorkers=4)
    old = revision_of(world.spec)
    world.upgrade()
    world.edit(replicas=4)
    world.run(5)
    world.edit(handlerImage="h:2")
    world.settle()
    by_revision = {found.revision: found.replicas for found in world.truth.deployments.values()}
    world.run(120)
    world.free()
    world.run(300)

    assert by_revision == {old: 4, revision_of(world.spec): 1}
    assert world.truth.taken == []
    assert [found.revision for found in world.truth.deployments.values()] == [revision_of(world.spec)]
    assert world.truth.rendered_by[deployment(world).name] == 2


def test_return_to_the_former_image_keeps_the_former_template() -> None:
    world = with_workers(2, maxWorkers=2)
    busy = set(world.pods)
    world.upgrade()
    world.truth.unpullable.add("h:2")
    world.edit(handlerImage="h:2")
    world.run(10)
    world.edit(handlerImage="h:1")
    world.run(30)

    assert set(world.pods) == busy
    assert (world.truth.taken, world.truth.rendered_by[deployment(world).name]) == ([], 1)


def test_pool_at_zero_is_rendered_again_only_at_its_next_start() -> None:
    world = World(pool_spec(), proven=True)
    world.settle()
    world.upgrade()
    assert writes(world) == []

    world.know(SourceFacts(held=2))
    assert [(getattr(one, "replicas", 0), getattr(one, "keeps_template", None)) for one in writes(world)] == [
        (2, False)
    ]
    assert world.truth.rendered_by[deployment(world).name] == 2


def test_edit_of_a_pool_at_zero_renders_it_again() -> None:
    world = World(pool_spec(), proven=True)
    world.settle()
    world.upgrade()
    world.edit(maxWorkers=3)
    world.settle()

    assert world.truth.rendered_by[deployment(world).name] == 2


def test_pod_that_leaves_keeps_the_template_of_its_deployment() -> None:
    world = with_workers(1)
    (name,) = world.pods
    world.edit(paused=True)
    world.run(5)
    world.truth.delete(name, "somebody")
    world.run(5)
    assert (deployment(world).replicas, list(world.truth.pods)) == (0, [name])

    world.upgrade()
    world.edit(maxWorkers=3)
    world.settle()
    assert world.truth.rendered_by[deployment(world).name] == 1


@pytest.mark.parametrize("edited", [False, True])
def test_two_versions_in_turn_write_nothing_about_running_workers(edited: bool) -> None:
    world = with_workers(3)
    if edited:
        world.upgrade()
        world.edit(maxWorkers=11)
        world.settle()
    version = deployment(world).resource_version
    for turn in (2, 1, 2, 1):
        world.upgrade(turn)
        assert writes(world) == []

    assert deployment(world).resource_version == version


def test_rollback_of_the_operator_replaces_no_worker() -> None:
    world = World(pool_spec(minWorkers=2, maxWorkers=2), proven=True)
    world.upgrade()
    world.run(10)
    world.occupy(*world.pods)
    busy = set(world.pods)
    world.upgrade(1)
    world.edit(replicas=2)
    world.run(60)

    assert (set(world.pods), world.truth.taken) == (busy, [])
    assert world.truth.rendered_by[deployment(world).name] == 2


@pytest.mark.parametrize(("version", "keeps"), [(1, False), (2, True)])
def test_edited_template_is_reverted_to_what_was_applied(version: int, keeps: bool) -> None:
    world = with_workers(2)
    world.upgrade(version)
    world.truth.write(replace(deployment(world), drifted=True))

    applied = [action for action in writes(world) if isinstance(action, ApplyRevision)]
    assert [(action.keeps_template, action.replicas) for action in applied] == [(keeps, 2)]
    assert (world.truth.rendered_by[deployment(world).name], world.truth.taken) == (1, [])
