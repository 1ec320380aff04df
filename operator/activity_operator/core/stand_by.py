"""PURE: which workers poll and which stand by, so that most idle workers can leave without waiting for a poll.

A poll of Step Functions stays open for up to a minute, and a worker cannot leave before its end. So only as many free
slots poll as tasks may arrive before a worker that stands by can poll as well. The others wait for the operator's next
reply: it offers them a lease, orders them to poll, or lets them leave at once.
"""

import math
from collections.abc import Iterator

from activity_operator.core import probing
from activity_operator.core.backlog import Backlog
from activity_operator.core.estimates import ARRIVAL_SECONDS, Estimates
from activity_operator.core.fleet import Member
from activity_operator.core.situation import Situation
from activity_operator.core.windows import POLL_SECONDS

#: Slots that poll beside the rate of tasks: the network may have dropped one of the two polls.
LEAST_POLLS = 2
#: Seconds from a task that takes a poll to the poll of a worker that has stood by: a report, a decision, a reply.
WAKE_SECONDS = 1.5
#: Longest interval between two reports of a worker that may stand by: it hears its next order only then.
LONGEST_INTERVAL_SECONDS = 2.0
#: The same for a worker that stands by already. Intervals grow while other workers have an order to hear.
LONGEST_STANDING_SECONDS = 2 * LONGEST_INTERVAL_SECONDS
#: Seconds for which an open poll of the operator stands for polls of workers: they poll again when the service ends it
#: after 60 s. While both polls are open, either may get a task, and that of the operator may wait for a new pod.
OWN_POLL_SECONDS = 59.0
#: Seconds from an order to poll to the decisions that may count with an open poll.
OPENED_SECONDS = (0.5, 2.0, 8.0)
#: Seconds after a limit of the rate at which the pool is decided again: exactly at the limit, rounding decides.
LATER_SECONDS = 0.00001


def standing_by(
    situation: Situation, backlog: Backlog, estimates: Estimates, leaving: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Return the workers that stand by, by pod UID: none while tasks may wait, or where the operator may not poll.

    Workers that poll go on, then those that stand by already are asked. The last polls of leaving workers count, also
    of those that this decision drains (`leaving`, pod UIDs), and so do the operator's own: what they bring reaches a
    worker that stands by, but none that polls. A busy worker stands by after its task while enough others poll, and a
    starting one from the start.
    """
    if not probing.counts_by_polls(situation) or probing.tasks_wait(situation) or backlog.tasks:
        return frozenset()
    fleet = situation.fleet
    staying = [member for member in fleet.serving if member.pod.uid not in leaving]
    stay = {member.pod.uid for member in staying}
    last_polls = sum(_last_polls(member) for member in fleet.members if member.pod.uid not in stay)
    wanted = polls_wanted(estimates) - last_polls - _own_polls(situation)
    chosen: set[str] = set()
    for member in sorted(staying, key=_order):
        if member.working and not member.polling:
            # Only its own next poll shows that it can poll again. Until then it counts as failing, and is replaced.
            continue
        if wanted > 0:
            wanted -= _polls_of(member)
        elif _hears_soon(member):
            chosen.add(member.pod.uid)
    return frozenset(chosen)


def polls_wanted(estimates: Estimates) -> int:
    """Return how many slots should poll: for the tasks of the next moment with their swings, and two more."""
    return LEAST_POLLS + _beside_least(estimates)


def recheck_times(situation: Situation, estimates: Estimates) -> Iterator[float]:
    """Yield the Unix times at which another number of slots should poll: the rate has fallen, or a poll is old."""
    if _own_polls(situation):
        yield situation.observation.source.newest_poll_at + OWN_POLL_SECONDS
    if (more := _beside_least(estimates)) and probing.counts_by_polls(situation):
        # The rate at which coming + 2 * sqrt(coming) is `more` tasks.
        rate = (math.sqrt(more + 1.0) - 1.0) ** 2 / WAKE_SECONDS
        yield situation.observation.now + ARRIVAL_SECONDS * math.log(estimates.arrivals / rate) + LATER_SECONDS


def ordered_since(situation: Situation, polls: int, before: float) -> float:
    """Return since when the operator's `polls` are ordered while none is open, 0 if that is not so.

    `before` is the answer of the decision before. Times are Unix seconds.
    """
    if not polls or situation.observation.source.open_polls:
        return 0.0
    return before or situation.observation.now


def opened_at(situation: Situation, polls: int, since: float) -> Iterator[float]:
    """Yield the Unix times at which another one of the operator's `polls` beside workers is open.

    Workers stand by for an open poll, and no event tells that one has been opened: at once, half a minute after the
    newest one (`sentinel_polls.stagger_seconds`), or when that one ends. `since` is as in `ordered_since`: a poll that
    does not open, because the service throttles it, is looked for a few times. While polls fail, workers stand by for
    none.
    """
    source = situation.observation.source
    if not polls or not situation.fleet.working or not probing.counts_by_polls(situation):
        return
    if source.open_polls:
        yield source.newest_poll_at + POLL_SECONDS / 2 + OPENED_SECONDS[0]
        yield source.newest_poll_at + POLL_SECONDS + OPENED_SECONDS[0]
    else:
        yield from (since + seconds for seconds in OPENED_SECONDS)


def _beside_least(estimates: Estimates) -> int:
    coming = estimates.arrivals * WAKE_SECONDS
    return int(coming + 2.0 * math.sqrt(coming))


def _order(member: Member) -> tuple[int, str]:
    """Return who polls first: open polls, then idle workers, then busy ones, then those that start."""
    if member.report is None or not member.working:
        return 3, member.pod.uid
    if member.polling and member.report.open_polls:
        return 0, member.pod.uid
    return (1 if member.busy < member.slots else 2), member.pod.uid


def _polls_of(member: Member) -> int:
    """Return how many slots of the worker poll, or would at once: a busy worker polls later."""
    return max(member.slots - member.busy, 0) if member.polling else 0


def _last_polls(member: Member) -> int:
    """Return the open polls of a worker that is leaving: it still runs what they bring."""
    return 0 if member.stalled or member.report is None else member.report.open_polls


def _own_polls(situation: Situation) -> int:
    """Return the polls of workers for which the operator's own open polls stand.

    One is enough for a pool without more tasks: if the network has dropped it, the workers poll again in a minute.
    """
    source = situation.observation.source
    young = source.open_polls and situation.observation.now < source.newest_poll_at + OWN_POLL_SECONDS
    return max(source.open_polls, LEAST_POLLS) if young else 0


def _hears_soon(member: Member) -> bool:
    longest = LONGEST_STANDING_SECONDS if member.stands_by else LONGEST_INTERVAL_SECONDS
    return member.report is None or member.report.interval_seconds <= longest
