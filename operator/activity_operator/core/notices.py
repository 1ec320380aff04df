"""What is worth an Event: transitions, said once each time they begin."""

from collections.abc import Iterator, Mapping

from activity_operator.api.conditions import Reason
from activity_operator.api.spec import PoolSpec
from activity_operator.core import polls
from activity_operator.core.decision import Breaker, Say, Size
from activity_operator.core.fleet import Fleet
from activity_operator.core.hindrance import hindrance
from activity_operator.core.observation import Observation

#: Seconds of a term in which silence is what every change of leader brings, and no news.
YOUNG_TERM_SECONDS = 30.0


def notices(
    spec: PoolSpec, seen: Observation, fleet: Fleet, size: Size, breaker: Breaker, said: Mapping[str, str]
) -> tuple[tuple[Say, ...], Mapping[str, str]]:
    """Return the Events to publish, and what has been said by now (topic to what was said of it)."""
    topics = {topic: (key, say) for topic, key, say in _topics(spec, seen, fleet, breaker)}
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
    if seen.refusal:
        yield "refusal", seen.refusal, Say("Warning", str(Reason.TENANCY_DENIED), seen.refusal)
    if seen.rejected:
        yield "rejected", seen.rejected, Say("Warning", seen.rejected_reason, seen.rejected)
    for topic, reason, message in _faults(spec, seen, fleet, breaker):
        yield topic, reason, Say("Warning", str(reason), message)
    yield from _doubts(seen, fleet)


def _faults(spec: PoolSpec, seen: Observation, fleet: Fleet, breaker: Breaker) -> Iterator[tuple[str, str, str]]:
    """Yield what is said anew only when its reason changes, since messages name pods and numbers."""
    if breaker.open:
        yield "breaker", breaker.reason, breaker.message
    if seen.source.error:
        yield "source", seen.source.error.reason, seen.source.error.message
    if (trouble := polls.trouble(spec, fleet)) is not None:
        yield "polls", *trouble
    if (waits := hindrance(seen, fleet)) is not None:
        yield "hindrance", *waits
    if seen.unauthenticated:
        yield "reports", Reason.REPORTS_UNAUTHENTICATED, seen.unauthenticated


def _doubts(seen: Observation, fleet: Fleet) -> Iterator[tuple[str, str, Say]]:
    if seen.suspect and seen.now - seen.leader_since >= YOUNG_TERM_SECONDS:
        yield "suspect", "suspect", Say("Warning", str(Reason.REPORTS_MISSING), seen.suspect)
    if seen.rivals:
        names = ", ".join(seen.rivals[:5])
        text = f"also polled for by {names}: tasks go to whichever worker asks first"
        yield "rivals", names, Say("Warning", "ActivityShared", text)
    for member in fleet.stalled:
        text = f"worker {member.pod.name} stopped reporting; its tasks are counted as running"
        yield f"stalled/{member.pod.uid}", "stalled", Say("Warning", "WorkerStalled", text)
