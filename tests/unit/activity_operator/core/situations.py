"""What a decision of a random story shows: the situation that came about, and whether the decision lasts."""

from collections import Counter
from dataclasses import replace

from activity_operator.api.spec import PoolSpec
from activity_operator.core.breaker import CLOSED_SECONDS
from activity_operator.core.decide import decide
from activity_operator.core.decision import Decision, EmitEvent
from activity_operator.core.fleet import join_reports
from activity_operator.core.observation import Observation
from tests.unit.activity_operator.core.truth import Truth

#: A minute and a half, and a day.
LATER_SECONDS = (90.0, 86_400.0)


def seconds_of_work(truth: Truth) -> float:
    """Return the seconds that one worker alone would need for all unfinished work."""
    under_way = (until - truth.now for pod in truth.pods.values() if pod.process for until in pod.process.tasks)
    return sum(truth.waiting) + sum(truth.held) + sum(under_way)


def count(reached: Counter[str], spec: PoolSpec, truth: Truth, observation: Observation, decision: Decision) -> None:
    """Count the situations that came about, which shows whether the search reaches them."""
    fleet = join_reports(spec, observation)
    for action in decision.actions:
        name = type(action).__name__ if not isinstance(action, EmitEvent) else f"event {action.reason}"
        reached[name] += 1
        if name == "SetDeletionCost" and getattr(action, "cost", 0) is None:
            reached["uncordoned"] += 1
        reached["applied with the former template"] += getattr(action, "keeps_template", False)
    reached[f"limit {decision.size.limit}"] += 1
    reached["breaker open"] += decision.memory.breaker.open
    reached["stalled"] += bool(fleet.stalled)
    reached["unheard"] += bool(fleet.unheard)
    reached["report path degraded long into a term"] += (
        bool(observation.report_path_problem) and observation.now - observation.leader_since > 10
    )
    reached["drained and waiting to go"] += any(member.drained for member in fleet.members)
    states = {(pod.process.state, bool(pod.process.tasks)) for pod in truth.pods.values() if pod.process}
    for state, busy in states:
        reached[f"{state.value}{' and busy' if busy else ''}"] += 1
    both = {deployment.revision for deployment in observation.deployments if deployment.replicas}
    reached["two revisions"] += len(both) > 1


def changes_too_early(spec: PoolSpec, observation: Observation, decision: Decision) -> str:
    """Return how time alone changes the decision before `look_again_in` has passed, "" if it does not."""
    wait = decision.look_again_in
    if wait is not None and wait <= CLOSED_SECONDS:
        # A breaker that has just closed, or is about to close, gives another answer at the next look in any case.
        return ""
    for seconds in LATER_SECONDS if wait is None else (wait / 2, wait * 0.999):
        now, source = observation.now + seconds, observation.source
        if source.error is None:
            source = replace(source, counts=tuple(replace(one, observed_at=now) for one in source.counts))
        later = decide(spec, replace(observation, now=now, source=source), decision.memory)
        if _answer(later) != _answer(decision):
            return (
                f"another answer {seconds} s later, although look_again_in is {wait}:\n"
                f"{later.size} {_answer(later)}\ninstead of\n{decision.size} {_answer(decision)}"
            )
    return ""


def _answer(decision: Decision) -> tuple[object, ...]:
    writes = tuple(action for action in decision.actions if not isinstance(action, EmitEvent))
    return decision.size.desired, writes, dict(decision.directives), decision.sentinel
