"""`scaling.mode: Recommend`: the operator says which size it would set, and writes nothing.

`paused` and `replicas` are orders and are carried out as in mode Auto. A pinned pool then shows both sizes: the one of
its pin, and the one that the operator would set.
"""

from activity_operator.core.decision import Limit, Size
from activity_operator.core.situation import Situation


def has_recommendation(situation: Situation) -> bool:
    """Whether the pool has a recommended size: not while it is paused or refused, where every size is zero."""
    return situation.spec.scaling.mode == "Recommend" and not (situation.spec.paused or situation.observation.refusal)


def leaves_pods(situation: Situation) -> bool:
    """Whether the operator leaves the pool's Deployments and pods as they are."""
    return has_recommendation(situation) and situation.spec.replicas is None


def present_size(situation: Situation, recommended: Size) -> Size:
    """Return the size that the Deployments have, with what the operator would set instead as the reason."""
    size = sum(found.replicas for found in situation.observation.deployments if not found.deleting)
    reason = f"scaling.mode Recommend writes nothing; it would set {recommended.desired}: {recommended.reason}"
    return Size(size, Limit.RECOMMEND, reason)
