"""One pool at one moment: the input of every step of a decision."""

from dataclasses import dataclass

from activity_operator.api.spec import PoolSpec
from activity_operator.core import schedules
from activity_operator.core.fleet import Fleet, join_reports
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import Observation


@dataclass(frozen=True, slots=True)
class Situation:
    """The spec, the observation, the pods joined with their reports, and the name of the spec's template revision.

    `minWorkers` and `maxWorkers` of the spec are those that apply now; `schedule` says whether a schedule set them.
    """

    spec: PoolSpec
    observation: Observation
    fleet: Fleet
    revision: str
    schedule: schedules.ActiveSchedule = schedules.NO_SCHEDULE


def situation_of(spec: PoolSpec, observation: Observation) -> Situation:
    """Return the situation: the pods joined with their reports, and the name of the spec's revision."""
    schedule = schedules.schedule_at(spec.scaling.schedules, observation.now)
    applied = schedules.apply(spec, schedule)
    return Situation(applied, observation, join_reports(spec, observation), revision_of(spec), schedule)
