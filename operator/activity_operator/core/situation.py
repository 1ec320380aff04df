"""One pool at one moment: the input of every step of a decision."""

from dataclasses import dataclass

from activity_operator.api.spec import PoolSpec
from activity_operator.core.fleet import Fleet, join_reports
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import Observation


@dataclass(frozen=True, slots=True)
class Situation:
    """The spec, the observation, the pods joined with their reports, and the name of the spec's template revision."""

    spec: PoolSpec
    observation: Observation
    fleet: Fleet
    revision: str


def situation_of(spec: PoolSpec, observation: Observation) -> Situation:
    """Return the situation: the pods joined with their reports, and the name of the spec's revision."""
    return Situation(spec, observation, join_reports(spec, observation), revision_of(spec))
