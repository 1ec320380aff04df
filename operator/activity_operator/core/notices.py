"""What is worth an Event: transitions, said once each time they begin."""

from collections.abc import Iterator, Mapping

from activity_operator.api.conditions import Reason
from activity_operator.api.spec import PoolSpec
from activity_operator.core.decision import Breaker, Say, Size
from activity_operator.core.faults import faults
from activity_operator.core.fleet import Fleet
from activity_operator.core.observation import Observation

#: Why growth stopped, by the rule that stopped it, where the workers themselves are the reason.
FUTILE = {"idle": Reason.WORKERS_IDLE, "crashing": Reason.WORKERS_CRASHING, "mute": Reason.WORKERS_MUTE}
#: Seconds of a term in which silence is what every change of leader brings, and no news.
YOUNG_TERM_SECONDS = 30.0


def notices(
    spec: PoolSpec, seen: Observation, fleet: Fleet, size: Size, breaker: Breaker, said: Mapping[str, str]
) -> tuple[tuple[Say, ...], Mapping[str, str]]:
    """Return the Events to publish, and what has been said by now (topic to what was said of it)."""
    topics = {topic: (key, say) for topic, key, say in _topics(spec, seen, fleet, breaker)}
    if (why := FUTILE.get(size.limit)) is not None:
        topics["futile"] = (size.limit, Say("Warning", str(why), size.reason))
    events = [say for topic, (key, say) in topics.items() if said.get(topic) != key]
    known = {topic: key for topic, (key, _) in topics.items()}
    known["size"] = str(size.desired)
    before = said.get("size")
    if before is not None and before != known["size"]:
        grew = size.desired > int(before)
        events.append(
            Say("Normal", "ScaledUp" if grew else "ScaledDown", f"{before} -> {size.desired} workers: {size.reason}")
        )
    return tuple(events), known


def _topics(spec: PoolSpec, seen: Observation, fleet: Fleet, breaker: Breaker) -> Iterator[tuple[str, str, Say]]:
    for fault in faults(spec, seen, fleet, breaker):
        yield fault.topic, fault.key, Say("Warning", str(fault.reason), fault.message)
    yield from _doubts(seen, fleet)


def _doubts(seen: Observation, fleet: Fleet) -> Iterator[tuple[str, str, Say]]:
    if seen.suspect and seen.now - seen.leader_since >= YOUNG_TERM_SECONDS:
        yield "suspect", "suspect", Say("Warning", str(Reason.REPORTS_MISSING), seen.suspect)
    if seen.contested:
        yield "contested", seen.contested, Say("Warning", str(Reason.DEPLOYMENT_CONTESTED), seen.contested)
    if seen.rivals:
        names = ", ".join(seen.rivals[:5])
        text = f"also polled for by {names}: tasks go to whichever worker asks first"
        yield "rivals", names, Say("Warning", "ActivityShared", text)
    for member in fleet.stalled:
        text = f"worker {member.pod.name} stopped reporting; its tasks are counted as running"
        yield f"stalled/{member.pod.uid}", "stalled", Say("Warning", "WorkerStalled", text)
