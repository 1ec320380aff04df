"""`scaling.activationThreshold`: a pool at zero stays there while only a few tasks wait."""

from activity_operator.core.demand import Demand
from activity_operator.core.situation import Situation


def start_waits(situation: Situation, demand: Demand) -> str:
    """Return why a pool at zero does not start, "" if it starts or is not at zero.

    A pool is at zero when it has no pod and asks for none. Once started it works until no task is left.
    """
    threshold = situation.spec.scaling.activation_threshold
    observation = situation.observation
    started = situation.fleet.members or any(deployment.replicas for deployment in observation.deployments)
    leased = observation.source.held + observation.source.claimed
    if not threshold or started or leased or demand.tasks > threshold:
        return ""
    return f"the pool starts above {threshold} (scaling.activationThreshold)"
