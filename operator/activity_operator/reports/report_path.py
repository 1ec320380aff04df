"""PURE: when the reports of many workers stop at once, the report path counts as degraded, not the workers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from activity_operator.core.observation import WorkerFacts
from activity_worker.contract import WorkerState

#: Report intervals without a report after which a worker counts as silent, as for a stalled worker of a pool.
STALLED_INTERVALS = 3
#: Least seconds without a report that count as silence: a slow garbage collection must not count as an outage.
LEAST_SILENCE_SECONDS = 15.0
#: Silences that begin within this many seconds have one cause. Workers that hang one by one begin further apart.
TOGETHER_SECONDS = 10.0
#: Least number of silent workers that proves an outage: two pods of one node often fail together.
LEAST_SILENT = 3
#: Seconds for which an ended silence still counts. After an outage the workers report again one by one: each waits up
#: to 10 s between two tries, and a report may take 5 s.
RECOVERY_SECONDS = 20.0
#: Length of the start of a term, in report intervals and at least in seconds: workers must first find the new leader.
TERM_INTERVALS = 2
LEAST_TERM_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Silence:
    """A worker's silence: the time of the last report, the report interval, and the time of the next report or None.

    Times are Unix seconds.
    """

    began: float
    interval_seconds: float
    ended: float | None = None

    def counts(self, now: float) -> bool:
        """Whether the silence lasts, or ended less than RECOVERY_SECONDS ago."""
        return self.ended is None or now - self.ended < RECOVERY_SECONDS


def silence(worker: WorkerFacts, until: float) -> Silence | None:
    """Return the worker's silence at the time `until`, None if its last report was recent or the worker had stopped."""
    patience = max(STALLED_INTERVALS * worker.interval_seconds, LEAST_SILENCE_SECONDS)
    if worker.state is WorkerState.STOPPED or until - worker.reported_at < patience:
        return None
    return Silence(worker.reported_at, worker.interval_seconds)


def report_path_problem(now: float, workers: Iterable[WorkerFacts], former: Iterable[Silence] = ()) -> str:
    """Return a sentence if more than half of all workers went silent together and some still are, else "".

    `former` are ended silences. They count for RECOVERY_SECONDS, because the other workers may recover as well.
    """
    speaking = [worker for worker in workers if worker.state is not WorkerState.STOPPED]
    lasting = [found for worker in speaking if (found := silence(worker, now)) is not None]
    ended = [one for one in former if one.counts(now)]
    together = _largest_group(sorted((*lasting, *ended), key=lambda one: one.began))
    if not lasting or together < LEAST_SILENT or 2 * together <= len(speaking):
        return ""
    return (
        f"{together} of {len(speaking)} workers fell silent together: the way of their reports is the suspect, "
        "so no pool of theirs changes its size and no worker is replaced until they report again; check the report "
        "Service and its certificate"
    )


def new_term_problem(now: float, leader_since: float, interval_seconds: float, expected_workers: int) -> str:
    """Return a sentence within two report intervals of a new term, if any worker is expected to report, else ""."""
    patience = max(TERM_INTERVALS * interval_seconds, LEAST_TERM_SECONDS)
    if not expected_workers or now - leader_since >= patience:
        return ""
    return f"this replica has led for less than {patience:.0f} s, so workers may not have found it yet"


def _largest_group(silences: Sequence[Silence]) -> int:
    """Return the largest number of silences that began within one window. `silences` are sorted by `began`."""
    best = first = 0
    for last, one in enumerate(silences):
        window = max(TOGETHER_SECONDS, 2 * one.interval_seconds)
        while one.began - silences[first].began > window:
            first += 1
        best = max(best, last - first + 1)
    return best
