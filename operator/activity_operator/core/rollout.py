"""Rollout of a new revision: one canary pod proves it, then the workers move over, one surge at a time."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from activity_operator.core.observation import DeploymentFacts
from activity_operator.core.situation import Situation

#: Share of the size by which a proven rollout may exceed it.
SURGE = 0.25


@dataclass(frozen=True, slots=True)
class Split:
    """The workers that should serve, by revision, and `surge`: the pods beyond the size that the rollout may have."""

    wanted: Mapping[str, int]
    surge: int


def split_by_revision(situation: Situation, desired: int, proven: frozenset[str], kept: int | None = None) -> Split:
    """Return how the size divides over the revisions.

    `kept` is the number of workers at which the gate keeps the new revision; the old one then keeps the whole size.

    Until a worker of the new revision has reported, the new revision gets one canary, and the newest old revision with
    workers keeps the whole size, even if the canary never starts. Then the new revision grows as old workers drain.
    """
    fleet, revision = situation.fleet, situation.revision
    old = _newest_old(situation)
    if old is None or desired == 0:
        return Split({revision: desired}, 0)
    if revision not in proven:
        return Split({revision: 1, old.revision: desired}, 1)
    if kept is not None:
        return Split({revision: min(kept, desired), old.revision: desired - max(0, kept - 1)}, 1)
    surge = max(1, math.ceil(desired * SURGE))
    leaving = sum(1 for member in fleet.members if member.pod.revision != revision)
    revision_members = [member for member in fleet.serving if member.pod.revision == revision]
    new = min(desired, max(len(revision_members), desired + surge - leaving))
    working = sum(1 for member in fleet.working if member.pod.revision == revision)
    return Split({revision: new, old.revision: max(0, desired - working)}, surge)


def _newest_old(situation: Situation) -> DeploymentFacts | None:
    serving = {member.pod.revision for member in situation.fleet.serving if not member.never_started}
    old = [
        d
        for d in situation.observation.deployments
        if d.revision != situation.revision and d.revision in serving and not d.deleting
    ]
    return max(old, key=lambda deployment: (deployment.created, deployment.name), default=None)
