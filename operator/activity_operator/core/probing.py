"""When the operator polls beside its workers, and what the answers prove.

Step Functions tells no number of waiting tasks. While every worker is busy, a few polls of the operator count them: a
poll that is answered at once had a task waiting, and becomes a lease for the next free slot. An open poll that stays
empty proves that no task waits.
"""

from collections.abc import Iterator

from activity_operator.core import freeze, preflight
from activity_operator.core.estimates import AWS_POLL_SECONDS, Estimates
from activity_operator.core.fleet import JOINER_SECONDS, Member
from activity_operator.core.observation import SourceProblem
from activity_operator.core.saturation import Saturation
from activity_operator.core.situation import Situation

#: Seconds for which every worker must have been busy before the operator polls beside them.
BUSY_SECONDS = 0.5
#: The same for each task a second of the last half minute, and the most, for tasks of at most a second: with many, each
#: poll of the operator gets a task soon although none waits, and delays it: a lease waits for a worker's report.
BUSY_SECONDS_OF_RATE, LONGEST_BUSY_SECONDS, SHORT_TASK_SECONDS = 0.1, 2.0, 1.0
#: Seconds after which an open poll proves that no task waits.
EMPTY_SECONDS = 0.5
#: Answers at once, one after the other, that outweigh an older poll that is still open: the network may have dropped
#: that one. At a steady load, new tasks make a few answers look like a backlog.
CLEAR_ANSWERS = 4
#: Open polls without an answer that outweigh any number of quick answers before.
SILENT_POLLS = 2


def may_probe(situation: Situation) -> bool:
    """Whether the operator may poll for the pool while workers run: its spec lets the pool grow by what polls bring."""
    spec, observation = situation.spec, situation.observation
    fixed = spec.paused or spec.replicas is not None or spec.scaling.mode == "Recommend" or freeze.stops_growth(spec)
    forbidden = fixed or observation.refusal or observation.pool.deleting
    return spec.source_kind == "stepFunctions" and spec.activation.mode == "Sentinel" and not forbidden


def own_poll_error(situation: Situation) -> SourceProblem | None:
    """Return why the operator cannot poll beside its workers, None if it can or need not.

    Only reasons that say nothing about the workers are returned: a right that the operator lacks, or its network.
    """
    error = situation.observation.source.poll_error
    if error is None or error.reason not in preflight.OPERATORS_OWN or not situation.fleet.working:
        return None
    return error if may_probe(situation) else None


def counts_by_polls(situation: Situation) -> bool:
    """Whether the operator's polls stand for a count: it may poll, and its polls succeed."""
    source = situation.observation.source
    return may_probe(situation) and source.error is None and not source.withheld


def tasks_wait(situation: Situation) -> bool:
    """Whether the operator's polls are answered at once, so that more tasks wait.

    Quick answers are no evidence any more once the polls that followed them stay open, those of workers included.
    """
    least = CLEAR_ANSWERS if _shows_empty(situation) else 1
    return situation.observation.source.at_once >= least and not _is_silent(situation)


def many_tasks_wait(situation: Situation) -> bool:
    """Whether a backlog waits, and not a few new tasks: `CLEAR_ANSWERS` polls in a row were answered at once."""
    return tasks_wait(situation) and situation.observation.source.at_once >= CLEAR_ANSWERS


def probes(situation: Situation, full: Saturation | None, estimates: Estimates) -> bool:
    """Whether the operator polls beside the workers now: all have been busy for a moment, or tasks are known to wait.

    `full` says since when every worker has been busy.
    """
    if not may_probe(situation):
        return False
    return tasks_wait(situation) or (
        full is not None and situation.observation.now >= full.since + _busy_seconds(estimates)
    )


def _busy_seconds(estimates: Estimates) -> float:
    task_seconds = estimates.task_seconds
    if not task_seconds or task_seconds > SHORT_TASK_SECONDS:
        return BUSY_SECONDS
    rate = estimates.occupied_short / (task_seconds + AWS_POLL_SECONDS)
    return min(max(BUSY_SECONDS_OF_RATE * rate, BUSY_SECONDS), LONGEST_BUSY_SECONDS)


def recheck_times(situation: Situation, full: Saturation | None, estimates: Estimates) -> Iterator[float]:
    """Yield the Unix times at which time alone can change whether the operator polls beside the workers."""
    source = situation.observation.source
    if full is not None:
        yield full.since + _busy_seconds(estimates)
    if source.at_once and source.oldest_poll_at:
        yield source.oldest_poll_at + EMPTY_SECONDS
        yield source.observed_at + EMPTY_SECONDS
    for member in situation.fleet.working:
        if member.report is not None and not member.report.answers and member.busy < member.slots:
            yield situation.observation.now + JOINER_SECONDS - member.idle_for


def unreachable_slots(members: tuple[Member, ...]) -> int:
    """Return how many free slots cannot take a held lease because their poll is open, for up to a minute."""
    return sum(_free_slots_with_poll(member) for member in members if member.working and member.idle)


def _is_silent(situation: Situation) -> bool:
    """Whether no answer has come for a while although several polls are open: the network drops hardly all of them.

    Polls of workers count as well: at `maxWorkers` the operator opens none.
    """
    source, now = situation.observation.source, situation.observation.now
    if now - source.observed_at < EMPTY_SECONDS:
        return False
    own = source.open_polls if _shows_empty(situation) else 0
    idle = [one for one in situation.fleet.polling if one.shows_no_backlog and now - one.idle_for >= source.observed_at]
    return own + sum(_free_slots_with_poll(member) for member in idle) >= SILENT_POLLS


def _free_slots_with_poll(member: Member) -> int:
    """Return how many slots without a task had an open poll at the last report."""
    return 0 if member.report is None else min(member.slots - member.busy, member.report.open_polls)


def _shows_empty(situation: Situation) -> bool:
    opened = situation.observation.source.oldest_poll_at
    return opened > 0 and situation.observation.now - opened >= EMPTY_SECONDS
