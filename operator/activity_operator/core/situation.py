"""One pool at one moment: the input of every step of a decision."""

from dataclasses import dataclass

from activity_operator.api.spec import PoolSpec
from activity_operator.core import schedules
from activity_operator.core.fleet import Fleet, join_reports
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import Observation
from activity_operator.core.windows import fades_from, idle_workers_poll, with_windows


@dataclass(frozen=True, slots=True)
class Situation:
    """The spec, the observation, the pods joined with their reports, and the name of the spec's template revision.

    `minWorkers` and `maxWorkers` of the spec are those that apply now; `schedule` says whether a schedule set them. The
    times of `scaleDown` are those that apply now; `default_window`: the spec sets no `stabilizationWindowSeconds`. Such
    a window fades from the Unix time `fades_from` on.
    """

    spec: PoolSpec
    observation: Observation
    fleet: Fleet
    revision: str
    schedule: schedules.ActiveSchedule = schedules.NO_SCHEDULE
    default_window: bool = False
    fades_from: float = 0.0

    @property
    def window_fades(self) -> bool:
        """Whether the workers that only the window keeps leave in steps, and not all at its end."""
        fades = self.default_window and not idle_workers_poll(self.spec)
        return fades and self.observation.now >= self.fades_from


def situation_of(
    spec: PoolSpec, observation: Observation, start_seconds: float | None = None, returned_at: float = 0.0
) -> Situation:
    """Return the situation: the pods joined with their reports, and the name of the spec's revision.

    `start_seconds` is the measured time of a pod's start, None if it is not known. The times of `scaleDown` that the
    spec does not set follow from it. `returned_at` is the Unix time of the last burst that came again (`load_swings`).
    """
    schedule = schedules.schedule_at(spec.scaling.schedules, observation.now)
    applied = schedules.apply(with_windows(spec, start_seconds), schedule)
    default_window = spec.scaling.scale_down.stabilization_window_seconds is None
    window = applied.scaling.scale_down.stabilization_window_seconds or 0
    return Situation(
        applied,
        observation,
        join_reports(spec, observation),
        revision_of(spec),
        schedule,
        default_window,
        fades_from(returned_at, window),
    )
