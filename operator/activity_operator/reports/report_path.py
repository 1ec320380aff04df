"""PURE: when so many workers fall silent at once that the report path is doubted, not the workers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from activity_operator.core.observation import WorkerFacts
from activity_worker.contract import WorkerState

#: Intervals of silence that make a worker count here, as in a pool's own reckoning.
STALLED_INTERVALS = 3
#: The least seconds of silence that count: below it one slow garbage collection would be an outage.
LEAST_SILENCE_SECONDS = 15.0
#: Silence that began within so many seconds is one cause; workers that hang one by one fall silent further apart.
TOGETHER_SECONDS = 10.0
#: Fewer silent workers than this prove nothing: two pods of one node are lost together every day.
LEAST_SILENT = 3
#: Seconds after a silence for which it still counts: a way that works again is found by one worker after the other, as
#: each has its own pause between two tries (10 s at most) and a report may take 5 s.
RECOVERY_SECONDS = 20.0
#: After a change of leader: workers must find the new one before their silence means anything.
TERM_INTERVALS = 2
LEAST_TERM_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Silence:
    """When a worker was last heard, at which interval it was to report, and when it reported again (None: not yet)."""

    began: float
    interval_seconds: float
    ended: float | None = None

    def counts(self, now: float) -> bool:
        """Whether it lasts or ended only just now."""
        return self.ended is None or now - self.ended < RECOVERY_SECONDS


def silence(worker: WorkerFacts, until: float) -> Silence | None:
    """Return how long the worker had been silent at a time, None if that is no silence."""
    patience = max(STALLED_INTERVALS * worker.interval_seconds, LEAST_SILENCE_SECONDS)
    if worker.state is WorkerState.STOPPED or until - worker.reported_at < patience:
        return None
    return Silence(worker.reported_at, worker.interval_seconds)


def report_path_problem(now: float, workers: Iterable[WorkerFacts], former: Iterable[Silence] = ()) -> str:
    """Return a sentence if more than half of all workers fell silent together and some still are, else "".

    `former` are silences that have ended: as long as they count, the others' ways may be found again just so.
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
    """Return a sentence within two intervals of a new term, if there are workers to hear from, else ""."""
    patience = max(TERM_INTERVALS * interval_seconds, LEAST_TERM_SECONDS)
    if not expected_workers or now - leader_since >= patience:
        return ""
    return f"this replica has led for less than {patience:.0f} s, so workers may not have found it yet"


def _largest_group(silences: Sequence[Silence]) -> int:
    """Return how many, of silences sorted by when they began, lie within one window at most."""
    best = first = 0
    for last, one in enumerate(silences):
        window = max(TOGETHER_SECONDS, 2 * one.interval_seconds)
        while one.began - silences[first].began > window:
            first += 1
        best = max(best, last - first + 1)
    return best
