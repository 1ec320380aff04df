"""`scaling.schedules`: other limits of the size at certain times."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from activity_operator.api.cron import next_time
from activity_operator.api.scaling_options import Schedule
from activity_operator.api.spec import PoolSpec


@dataclass(frozen=True, slots=True)
class ActiveSchedule:
    """The schedule that applies now: its name ("" for none), and its minWorkers and maxWorkers if it sets them.

    `changes_at` is when any schedule of the pool next begins or ends, Unix seconds, None if that never happens.
    """

    name: str = ""
    min_workers: int | None = None
    max_workers: int | None = None
    changes_at: float | None = None


NO_SCHEDULE = ActiveSchedule()


def schedule_at(schedules: Sequence[Schedule], now: float) -> ActiveSchedule:
    """Return the schedule that applies at `now` (Unix seconds): the first active one in the order of the spec."""
    if not schedules:
        return NO_SCHEDULE
    changes_at = min((at for one in schedules for at in _changes(one, now)), default=None)
    active = next((one for one in schedules if _is_active(one, now)), None)
    if active is None:
        return ActiveSchedule(changes_at=changes_at)
    return ActiveSchedule(active.name, active.min_workers, active.max_workers, changes_at)


def apply(spec: PoolSpec, schedule: ActiveSchedule) -> PoolSpec:
    """Return the spec with the limits that apply now. A pinned pool has no schedule: `replicas` beats it."""
    if not schedule.name or spec.replicas is not None:
        return spec
    most = spec.max_workers if schedule.max_workers is None else min(schedule.max_workers, spec.max_workers)
    least = spec.min_workers if schedule.min_workers is None else schedule.min_workers
    return spec.model_copy(update={"min_workers": min(least, most), "max_workers": most})


def _changes(schedule: Schedule, now: float) -> Iterator[float]:
    """Yield the next begin and the next end after `now`."""
    for cron in (schedule.start_cron, schedule.end_cron):
        if cron is not None and (at := next_time(cron, schedule.time_zone, now)) is not None:
            yield at
    for moment in (schedule.start_time, schedule.end_time):
        if moment is not None and moment.timestamp() > now:
            yield moment.timestamp()


def _is_active(schedule: Schedule, now: float) -> bool:
    """Whether the schedule applies: by cron if its next end comes before its next begin."""
    if schedule.start_time is not None and schedule.end_time is not None:
        return schedule.start_time.timestamp() <= now < schedule.end_time.timestamp()
    if schedule.start_cron is None or schedule.end_cron is None:
        return False
    begin = next_time(schedule.start_cron, schedule.time_zone, now)
    end = next_time(schedule.end_cron, schedule.time_zone, now)
    return end is not None and (begin is None or end < begin)
