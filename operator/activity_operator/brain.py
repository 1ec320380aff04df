"""The pure core as the reconciler calls it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from activity_operator.api.spec import PoolSpec
from activity_operator.api.status import EventRecord
from activity_operator.core import manifests, status
from activity_operator.core.decide import decide
from activity_operator.core.decision import Action, ApplyRevision, Decision, ScalingMemory
from activity_operator.core.observation import Observation, PoolFacts


class CoreBrain:
    """What to do, how a revision looks, what to say; `settings` are what every rendering of this process shares."""

    def __init__(self, settings: manifests.RenderSettings) -> None:
        self._settings = settings

    def decide(self, spec: PoolSpec, observation: Observation, memory: ScalingMemory) -> Decision:
        """Return what to do about one pool, with the manifests rendered."""
        decision = decide(spec, observation, memory)
        return replace(
            decision, actions=tuple(self._rendered(spec, observation.pool, action) for action in decision.actions)
        )

    def _rendered(self, spec: PoolSpec, pool: PoolFacts, action: Action) -> Action:
        if not isinstance(action, ApplyRevision):
            return action
        return replace(action, manifest=self.render(spec, pool, action.replicas))

    def revision(self, spec: PoolSpec) -> str:
        """Return the name of the spec's template revision."""
        return manifests.revision_of(spec)

    def render(self, spec: PoolSpec, pool: PoolFacts, replicas: int) -> Mapping[str, Any]:
        """Return the Deployment of the spec's revision, as it is applied."""
        return manifests.deployment(spec, pool, self._settings, self.revision(spec), replicas)

    def status(
        self,
        spec: PoolSpec,
        observation: Observation,
        decision: Decision,
        previous: Mapping[str, Any] | None,
        events: Sequence[EventRecord],
    ) -> Mapping[str, Any]:
        """Return the whole status."""
        return status.pool_status(spec, observation, decision, previous, events)
