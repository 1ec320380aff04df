"""One pool at one moment: what every step of a decision reads."""

from dataclasses import dataclass

from activity_operator.api.spec import PoolSpec
from activity_operator.core.fleet import Fleet, join_reports
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import Observation


@dataclass(frozen=True, slots=True)
class Situation:
    """The spec, what is observed, the pods joined with their reports, and the name of the spec's template revision."""

    spec: PoolSpec
    observation: Observation
    fleet: Fleet
    revision: str


def situation_of(spec: PoolSpec, observation: Observation) -> Situation:
    """Join pods and reports, and name the revision."""
    return Situation(spec, observation, join_reports(spec, observation), revision_of(spec))
