"""The Events of a decision: one for each transition."""

from collections.abc import Iterator, Mapping

from activity_operator.api.conditions import Reason
from activity_operator.core import preflight
from activity_operator.core.decision import Breaker, EmitEvent, Limit, Size
from activity_operator.core.not_ready import not_ready_reasons, served_without_polls
from activity_operator.core.observation import Observation, SourceProblem
from activity_operator.core.situation import Situation

#: The Event reason for each rule that stops growth because of the workers' behaviour.
GROWTH_STOP_REASONS = {
    Limit.IDLE: Reason.WORKERS_IDLE,
    Limit.CRASHING: Reason.WORKERS_CRASHING,
    Limit.MUTE: Reason.WORKERS_MUTE,
}
#: Seconds from the start of a term in which missing reports get no Event and no condition: every change of leader
#: interrupts reports.
YOUNG_TERM_SECONDS = 30.0


def reports_missing_in_new_term(observation: Observation) -> bool:
    """Whether reports are missing, and the term is so young that its beginning may be the cause."""
    young = observation.now - observation.leader_since < YOUNG_TERM_SECONDS
    return bool(observation.report_path_problem) and young


def without_polls(refused: SourceProblem) -> str:
    """Return the sentence about a pool that its workers serve although the operator may not poll: what works, a fix."""
    text = "the workers poll and do the work; the operator cannot poll beside them, so the pool keeps one slot free to "
    return f"{text}see a backlog: {refused.message}; or set spec.activation.mode to None"


def new_events(
    situation: Situation,
    size: Size,
    breaker: Breaker,
    announced: Mapping[str, str],
    recommended: Size | None = None,
    tasks_failing: str = "",
) -> tuple[tuple[EmitEvent, ...], Mapping[str, str]]:
    """Return the Events to publish, and the new `announced`: topic to the key of its last Event."""
    topics = {topic: (key, event) for topic, key, event in _topics(situation, breaker)}
    if (why := GROWTH_STOP_REASONS.get(size.limit)) is not None:
        topics["growth-stop"] = (size.limit, EmitEvent("Warning", str(why), size.reason))
    if tasks_failing:
        topics["tasks-failing"] = ("failing", EmitEvent("Warning", str(Reason.TASKS_FAILING), tasks_failing))
    events = [event for topic, (key, event) in topics.items() if announced.get(topic) != key]
    known = {topic: key for topic, (key, _) in topics.items()}
    known["size"] = str(size.desired)
    before = announced.get("size")
    if before is not None and before != known["size"]:
        grew = size.desired > int(before)
        events.append(
            EmitEvent(
                "Normal", "ScaledUp" if grew else "ScaledDown", f"{before} -> {size.desired} workers: {size.reason}"
            )
        )
    if recommended is not None:
        known["recommended"] = str(recommended.desired)
        if announced.get("recommended", str(size.desired)) != known["recommended"]:
            text = f"would set {recommended.desired} workers: {recommended.reason}"
            events.append(EmitEvent("Normal", "SizeRecommended", text))
    return tuple(events), known


def _topics(situation: Situation, breaker: Breaker) -> Iterator[tuple[str, str, EmitEvent]]:
    for fault in not_ready_reasons(situation, breaker):
        yield fault.topic, fault.key, EmitEvent("Warning", str(fault.reason), fault.message)
    yield from _other_topics(situation)


def _other_topics(situation: Situation) -> Iterator[tuple[str, str, EmitEvent]]:
    observation = situation.observation
    excused = [observation.excused_workers[member.pod.uid] for member in situation.fleet.stalled if member.excused]
    problem = observation.report_path_problem or min(excused, default="")
    if problem and observation.now - observation.leader_since >= YOUNG_TERM_SECONDS:
        yield "report-path", "report-path", EmitEvent("Warning", str(Reason.REPORTS_MISSING), problem)
    if observation.edit_conflict:
        yield (
            "edit-conflict",
            observation.edit_conflict,
            EmitEvent("Warning", str(Reason.DEPLOYMENT_CONTESTED), observation.edit_conflict),
        )
    if (right := preflight.missing_access(situation)) is not None:
        text = f"the pool works, but the operator cannot check its activity: {right.message}"
        yield "preflight-right", right.reason, EmitEvent("Warning", right.reason, text)
    if (refused := served_without_polls(situation)) is not None:
        yield "source", refused.reason, EmitEvent("Warning", refused.reason, without_polls(refused))
    if observation.sharing_pools:
        names = ", ".join(observation.sharing_pools[:5])
        text = f"also polled for by {names}: tasks go to whichever worker asks first"
        yield "shared-source", names, EmitEvent("Warning", "ActivityShared", text)
    for member in situation.fleet.stalled:
        text = f"worker {member.pod.name} stopped reporting; its tasks are counted as running"
        yield f"stalled/{member.pod.uid}", "stalled", EmitEvent("Warning", "WorkerStalled", text)
