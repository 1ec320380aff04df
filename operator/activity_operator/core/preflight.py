"""The operator's question whether the pool's activity exists: which answers are faults of the pool."""

from activity_operator.api.conditions import Reason
from activity_operator.core.observation import SourceProblem
from activity_operator.core.situation import Situation

#: Answers that are about the operator's identity or network, and say nothing about the workers'.
OPERATORS_OWN = {Reason.ACCESS_DENIED, Reason.WRONG_ACCOUNT, Reason.BACKEND_UNREACHABLE}


def fault(situation: Situation) -> SourceProblem | None:
    """Return why the pool cannot do its work, None if nothing is wrong or polls show that it can.

    In mode None the operator needs no right at the service, so a refusal of the operator is no fault.
    """
    problem = situation.observation.source.preflight
    if problem is None or _polls_succeed(situation, problem):
        return None
    own = problem.reason in OPERATORS_OWN and situation.spec.activation.mode == "None"
    return None if own else problem


def missing_access(situation: Situation) -> SourceProblem | None:
    """Return why the operator may not ask for an activity whose polls succeed: the pool works, and an Event says it."""
    problem = situation.observation.source.preflight
    if problem is None or situation.spec.activation.mode == "None" or not _polls_succeed(situation, problem):
        return None
    return problem if problem.reason in {Reason.ACCESS_DENIED, Reason.WRONG_ACCOUNT} else None


def _polls_succeed(situation: Situation, problem: SourceProblem) -> bool:
    """Return whether polls succeed: one of the operator's since the problem began, or the last of a worker."""
    source = situation.observation.source
    if source.error is None and source.observed_at > problem.since:
        return True
    return workers_poll(situation)


def workers_poll(situation: Situation) -> bool:
    """Return whether the last poll of a worker has succeeded."""
    # A worker between two polls, or one that stands by, has had answers before. If polls fail now, it will tell so.
    reports = [member.report for member in situation.fleet.polling if member.report is not None]
    return any(report.busy or report.open_polls or report.answers for report in reports)
