"""From the demand to the allowed size: pause beats pin, pin beats autoscaling, and maxWorkers always holds."""

from collections.abc import Iterator
from dataclasses import replace

from activity_operator.api.spec import PoolSpec
from activity_operator.core import activation, freeze, sentinel_plan
from activity_operator.core.blocked_pods import late_pod, unprepared_pod
from activity_operator.core.breaker import replacements, workers_allowed
from activity_operator.core.decision import Breaker, Limit, Size
from activity_operator.core.demand import Demand
from activity_operator.core.growth_guard import WITNESSES, GrowthStop
from activity_operator.core.situation import Situation
from activity_operator.core.stabilize import Stable


def limited_size(
    situation: Situation,
    demand: Demand,
    stable: Stable,
    breaker: Breaker,
    growth_stop: GrowthStop | None = None,
    last: int | None = None,
) -> Size:
    """Return how many workers may serve, the rule that set the number, and why. `last` is the size decided last.

    The reason names a pod that does not come: such a pod counts as a worker and takes no task.
    """
    size = _limited(situation, demand, stable, breaker, growth_stop, last)
    pod, late = late_pod(situation)
    return replace(size, reason=f"{size.reason}; {late}") if pod and pod not in size.reason else size


def _limited(
    situation: Situation,
    demand: Demand,
    stable: Stable,
    breaker: Breaker,
    growth_stop: GrowthStop | None,
    last: int | None,
) -> Size:
    spec, observation = situation.spec, situation.observation
    present = situation.fleet.present
    if observation.refusal:
        return Size(min(present, spec.max_workers), Limit.REFUSED, observation.refusal)
    if spec.paused:
        return Size(0, Limit.PAUSED, "spec.paused is true: workers finish what they hold and leave")
    if spec.replicas is not None:
        return _pinned(spec, spec.replicas)
    number, limit, reason = _needed(situation, demand, stable, breaker)
    number, frozen = freeze.size_with_freeze(situation, number, last)
    if frozen:
        limit, reason = Limit.FREEZE, f"{demand.reason}; {frozen}"
    if number < spec.min_workers:
        limit, field = _bound(situation, Limit.MIN)
        number, reason = spec.min_workers, f"{demand.reason}; {field} is {spec.min_workers}"
    asked = number
    if number > spec.max_workers:
        limit, field = _bound(situation, Limit.MAX)
        reason = f"{demand.reason} would need {number} workers; {field} is {spec.max_workers}"
        number = spec.max_workers
    for most, name, why in _bounds_of_growth(situation, breaker):
        if number > most:
            return Size(most, name, f"growth stopped: {why}")
    if growth_stop is not None and asked > (most := max(present, WITNESSES, spec.min_workers)):
        return Size(min(number, most), growth_stop.limit, f"growth stopped: {growth_stop.reason}")
    return Size(number, limit, reason)


def _bound(situation: Situation, limit: Limit) -> tuple[Limit, str]:
    """Return the rule behind minWorkers or maxWorkers, and its name for people: the field, or that of a schedule."""
    schedule = situation.schedule
    field, scheduled = (
        ("minWorkers", schedule.min_workers) if limit is Limit.MIN else ("maxWorkers", schedule.max_workers)
    )
    return (limit, field) if scheduled is None else (Limit.SCHEDULE, f"{field} of schedule {schedule.name}")


def _needed(situation: Situation, demand: Demand, stable: Stable, breaker: Breaker) -> tuple[int, Limit, str]:
    """Return the workers that the work needs, with those in place of pods that fail to start, the rule and why."""
    if stable.workers and (why := activation.start_waits(situation, demand)):
        return 0, Limit.ACTIVATION, f"{demand.reason}; {why}"
    more = replacements(situation, breaker) if stable.workers else 0
    number, reason = stable.workers + more, demand.reason
    if stable.held_by:
        return number, Limit.HELD, f"{reason}; kept at {number} by {stable.held_by}"
    if more:
        reason = f"{reason}, and {more} in place of pods that cannot start"
    if why := sentinel_plan.withheld(situation):
        return number, Limit.LEASES, f"{reason}; {why}"
    return number, demand.limit, reason


def _bounds_of_growth(situation: Situation, breaker: Breaker) -> Iterator[tuple[int, Limit, str]]:
    """Yield the temporary bounds of growth: size, rule and reason. The first bound below the demand applies."""
    observation, fleet = situation.observation, situation.fleet
    present = fleet.present
    if breaker.open:
        yield workers_allowed(situation, breaker), Limit.BREAKER, breaker.message
    if (stuck := unprepared_pod(situation)) is not None:
        yield max(present, 1), Limit.UNPREPARED, stuck
    if observation.report_path_problem and fleet.stalled:
        # Stalled workers may have free slots: they were enough when their reports stopped.
        yield max(present, situation.spec.min_workers), Limit.DOUBT, observation.report_path_problem


def _pinned(spec: PoolSpec, replicas: int) -> Size:
    if replicas > spec.max_workers:
        return Size(spec.max_workers, Limit.MAX, f"spec.replicas pins {replicas}; maxWorkers is {spec.max_workers}")
    return Size(replicas, Limit.PIN, f"spec.replicas pins {replicas}")
