"""Two controllers that write one Deployment: detected, named, reverted at most four times a minute."""

from dataclasses import replace
from typing import Any

import pytest

from activity_operator.cluster import edit_conflicts, field_managers
from activity_operator.cluster.edit_conflicts import EDITS, PACE_SECONDS, WINDOW_SECONDS, EditConflicts
from activity_operator.cluster.facts import deployment_facts
from activity_operator.cluster.resources import DEPLOYMENTS
from activity_operator.cluster.transform import trim
from activity_operator.core.observation import DeploymentFacts

NAME = "p-r1"
OURS = DeploymentFacts(NAME, "d1", "1", "r1", 1, replicas=4)


def scaled(replicas: int = 0, by: str = "keda") -> DeploymentFacts:
    return replace(OURS, replicas=replicas, scaled_by=by)


class Contest:
    """A client that scales or edits at given times, and an operator that reverts when the contest allows it."""

    def __init__(self, **edit: Any) -> None:
        self.edit = replace(OURS, **(edit or {"replicas": 0, "scaled_by": "keda"}))
        self.contests = EditConflicts()
        self.live = OURS
        self.wrote = {NAME: OURS.replicas}
        self.writes: list[float] = []
        self.messages: list[str] = []

    def look(self, now: float) -> None:
        for found in self.contests.find_edits([self.live], self.wrote, now):
            if found.note and not self.contests.open(NAME, now):
                self.messages.append(found.note)
        self.wrote[NAME] = self.live.replicas
        if self.live != OURS and self.contests.wait(NAME, now) <= 0:
            self.contests.wrote(NAME, now)
            self.live, self.wrote[NAME] = OURS, OURS.replicas
            self.writes.append(now)

    def run(self, seconds: float, every: float | None, since: float = 0.0, step: float = 0.25) -> None:
        """Let time pass; the other client edits every `every` seconds: 0 means at once, None means never."""
        due, now = since, since
        while now < since + seconds:
            if every is not None and now >= due and self.live == OURS:
                self.live, due = self.edit, now + every
            self.look(now)
            now += step


@pytest.mark.parametrize("edit", [{"replicas": 0}, {"replicas": 9}, {"drifted": True}], ids=str)
@pytest.mark.parametrize("every", [0, 1, 7, 15, 40])
def test_reverts_are_limited_to_four_a_minute_after_the_first_three(edit: dict[str, Any], every: float) -> None:
    contested = Contest(**edit)
    contested.run(600, every)

    for begin in range(0, 600, 15):
        assert sum(1 for at in contested.writes if begin <= at < begin + 60) <= EDITS + 60 / PACE_SECONDS
    assert len(contested.writes) <= EDITS + 600 / PACE_SECONDS
    assert contested.contests.open(NAME, 600.0)
    assert len(contested.messages) <= EDITS


def test_single_edit_is_reverted_at_once_without_a_contest() -> None:
    contested = Contest()
    for at in (0.0, 100.0, 200.0, 300.0):
        contested.run(50, 1000, since=at)

    assert contested.writes == [0.0, 100.0, 200.0, 300.0]
    assert contested.contests.message(350.0) == ""
    assert contested.messages == ["was scaled by somebody (4 -> 0); the pool decides its size (field manager keda)"] * 4


def test_contest_names_writer_and_fix_and_ends_two_minutes_after_last_edit() -> None:
    contested = Contest()
    contested.run(60, 1)
    sentence = contested.contests.message(60.0)

    assert sentence == (
        "Deployment p-r1 is also written by keda, again and again: what the pool declares is put back once in 15 s at "
        "most; exclude the Deployment there, or have the ActivityPool scaled instead"
    )
    contested.run(60, None, since=60.0)
    assert contested.live == OURS, "the operator wrote last"
    assert contested.contests.message(120.0) == sentence
    left = contested.contests.ends_in(120.0)
    assert left is not None
    assert left <= WINDOW_SECONDS - 60
    assert contested.contests.message(120.0 + left) == ""
    assert contested.contests.ends_in(120.0 + left) is None
    assert contested.contests.wait(NAME, 120.0 + left) == 0


def test_drift_that_waits_for_its_revert_is_one_edit() -> None:
    conflicts = EditConflicts()
    for now in range(60):
        assert len(list(conflicts.find_edits([replace(OURS, drifted=True)], {}, now))) == (now == 0)
    assert not conflicts.open(NAME, 60.0)


def entry(manager: str, time: str = "2026-01-01T00:00:00Z", subresource: str = "", **fields: Any) -> dict[str, Any]:
    named = {f"f:{name}": value for name, value in fields.items()}
    return {"manager": manager, "time": time, "subresource": subresource, "fieldsV1": named}


def deployment(*managed: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": NAME, "namespace": "ns", "uid": "d1", "resourceVersion": "1", "managedFields": list(managed)}
    return trim(DEPLOYMENTS, {"metadata": meta, "spec": {"replicas": 4}})


OWN = entry("activitypool", spec={"f:replicas": {}, "f:template": {"f:spec": {}}}, metadata={"f:labels": {}})
CONTROLLER = entry("kube-controller-manager", subresource="status", metadata={"f:annotations": {}}, status={})


def test_managed_fields_name_who_scaled_and_who_edited() -> None:
    live = deployment(
        OWN,
        CONTROLLER,
        entry("keda", subresource="scale", spec={"f:replicas": {}}),
        entry("kubectl", "2026-01-01T00:00:01Z", subresource="scale", spec={"f:replicas": {}}),
        entry("argocd-controller", spec={"f:template": {"f:spec": {}}}),
        entry("kubectl-label", "2025-01-01T00:00:00Z", metadata={"f:labels": {}}),
    )
    facts = deployment_facts(live)

    assert (facts.scaled_by, facts.edited_by) == ("kubectl", "argocd-controller")


def test_replicas_from_controller_manager_are_attributed_to_an_autoscaler() -> None:
    facts = deployment_facts(deployment(OWN, entry("kube-controller-manager", spec={"f:replicas": {}})))

    assert facts.scaled_by == "kube-controller-manager (a HorizontalPodAutoscaler)"


def test_managed_fields_are_dropped_without_foreign_writers() -> None:
    live = deployment(OWN, CONTROLLER)

    assert "managedFields" not in live["metadata"]
    assert (deployment_facts(live).scaled_by, deployment_facts(live).edited_by) == ("", "")
    assert field_managers.named("") == ""


def test_unknown_writer_is_called_somebody() -> None:
    conflicts = EditConflicts()
    for now in range(edit_conflicts.EDITS):
        conflicts.edited(NAME, "", "", now)

    assert "is also written by somebody, again" in conflicts.message(3.0)
