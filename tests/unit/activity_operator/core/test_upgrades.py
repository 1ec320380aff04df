"""An operator of another version renders other pods: running workers stay, and the change enters with new pods."""

from dataclasses import replace

import pytest

from activity_operator.core.decision import Action, ApplyRevision, EmitEvent
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import DeploymentFacts, SourceFacts
from tests.unit.activity_operator.core.pool_harness import PoolHarness, pool_spec

EDITS: list[dict[str, object]] = [{"maxWorkers": 11}, {"replicas": 4}, {"replicas": 2}, {"minWorkers": 5}]


def with_workers(number: int, **changes: object) -> PoolHarness:
    """Return a pool whose `minWorkers` workers run, one task each."""
    harness = PoolHarness(pool_spec(minWorkers=number, **changes), proven=True)
    harness.run(10)
    harness.occupy(*harness.pods)
    return harness


def deployment(harness: PoolHarness) -> DeploymentFacts:
    """Return the pool's only Deployment."""
    (found,) = harness.truth.deployments.values()
    return found


def writes(harness: PoolHarness) -> list[Action]:
    """Return the writes of one decision, after they were carried out."""
    return [action for action in harness.term.look()[2].actions if not isinstance(action, EmitEvent)]


@pytest.mark.parametrize("edit", EDITS, ids=str)
def test_edit_after_an_upgrade_replaces_no_worker(edit: dict[str, object]) -> None:
    harness = with_workers(4)
    busy = set(harness.pods)
    harness.upgrade()
    harness.edit(**edit)
    harness.run(120)

    assert harness.truth.taken == []
    assert busy <= set(harness.truth.pods)
    assert deployment(harness).rendered_generation == 2
    assert harness.truth.rendered_by == {deployment(harness).name: 1}


def test_new_pods_beside_running_ones_have_the_same_template() -> None:
    harness = with_workers(2)
    harness.upgrade()
    harness.edit(minWorkers=3)

    assert [(type(one), getattr(one, "keeps_template", None)) for one in writes(harness)] == [(ApplyRevision, True)]
    assert writes(harness) == []
    harness.run(10)
    assert (len(harness.serving()), harness.truth.rendered_by) == (3, {deployment(harness).name: 1})


def test_repeated_writes_of_an_autoscaler_replace_no_worker() -> None:
    harness = with_workers(3)
    busy = set(harness.pods)
    harness.upgrade()
    for replicas in (4, 3, 5, 3, 6):
        harness.edit(replicas=replicas)
        harness.run(15)

    assert harness.truth.taken == []
    assert busy <= set(harness.pods)
    assert set(harness.truth.rendered_by.values()) == {1}


def test_new_image_after_an_upgrade_rolls_by_the_canary() -> None:
    harness = with_workers(4, maxWorkers=4)
    old = revision_of(harness.spec)
    harness.upgrade()
    harness.edit(replicas=4)
    harness.run(5)
    harness.edit(handlerImage="h:2")
    harness.settle()
    by_revision = {found.revision: found.replicas for found in harness.truth.deployments.values()}
    harness.run(120)
    harness.free()
    harness.run(300)

    assert by_revision == {old: 4, revision_of(harness.spec): 1}
    assert harness.truth.taken == []
    assert [found.revision for found in harness.truth.deployments.values()] == [revision_of(harness.spec)]
    assert harness.truth.rendered_by[deployment(harness).name] == 2


def test_return_to_the_former_image_keeps_the_former_template() -> None:
    harness = with_workers(2, maxWorkers=2)
    busy = set(harness.pods)
    harness.upgrade()
    harness.truth.unpullable.add("h:2")
    harness.edit(handlerImage="h:2")
    harness.run(10)
    harness.edit(handlerImage="h:1")
    harness.run(30)

    assert set(harness.pods) == busy
    assert (harness.truth.taken, harness.truth.rendered_by[deployment(harness).name]) == ([], 1)


def test_pool_at_zero_is_rendered_again_only_at_its_next_start() -> None:
    harness = PoolHarness(pool_spec(), proven=True)
    harness.settle()
    harness.upgrade()
    assert writes(harness) == []

    harness.know(SourceFacts(held=2))
    assert [(getattr(one, "replicas", 0), getattr(one, "keeps_template", None)) for one in writes(harness)] == [
        (2, False)
    ]
    assert harness.truth.rendered_by[deployment(harness).name] == 2


def test_edit_of_a_pool_at_zero_renders_it_again() -> None:
    harness = PoolHarness(pool_spec(), proven=True)
    harness.settle()
    harness.upgrade()
    harness.edit(maxWorkers=3)
    harness.settle()

    assert harness.truth.rendered_by[deployment(harness).name] == 2


def test_pod_that_leaves_keeps_the_template_of_its_deployment() -> None:
    harness = with_workers(1)
    (name,) = harness.pods
    harness.edit(paused=True)
    harness.run(5)
    harness.truth.delete(name, "somebody")
    harness.run(5)
    assert (deployment(harness).replicas, list(harness.truth.pods)) == (0, [name])

    harness.upgrade()
    harness.edit(maxWorkers=3)
    harness.settle()
    assert harness.truth.rendered_by[deployment(harness).name] == 1


@pytest.mark.parametrize("edited", [False, True])
def test_two_versions_in_turn_write_nothing_about_running_workers(edited: bool) -> None:
    harness = with_workers(3)
    if edited:
        harness.upgrade()
        harness.edit(maxWorkers=11)
        harness.settle()
    version = deployment(harness).resource_version
    for turn in (2, 1, 2, 1):
        harness.upgrade(turn)
        assert writes(harness) == []

    assert deployment(harness).resource_version == version


def test_rollback_of_the_operator_replaces_no_worker() -> None:
    harness = PoolHarness(pool_spec(minWorkers=2, maxWorkers=2), proven=True)
    harness.upgrade()
    harness.run(10)
    harness.occupy(*harness.pods)
    busy = set(harness.pods)
    harness.upgrade(1)
    harness.edit(replicas=2)
    harness.run(60)

    assert (set(harness.pods), harness.truth.taken) == (busy, [])
    assert harness.truth.rendered_by[deployment(harness).name] == 2


@pytest.mark.parametrize(("version", "keeps"), [(1, False), (2, True)])
def test_edited_template_is_reverted_to_what_was_applied(version: int, keeps: bool) -> None:
    harness = with_workers(2)
    harness.upgrade(version)
    harness.truth.write(replace(deployment(harness), drifted=True))

    applied = [action for action in writes(harness) if isinstance(action, ApplyRevision)]
    assert [(action.keeps_template, action.replicas) for action in applied] == [(keeps, 2)]
    assert (harness.truth.rendered_by[deployment(harness).name], harness.truth.taken) == (1, [])
