"""PURE: when so many workers fall silent at once that the report path is doubted, not the workers."""

from collections.abc import Iterable, Sequence

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
#: After a change of leader: workers must find the new one before their silence means anything.
TERM_INTERVALS = 2
LEAST_TERM_SECONDS = 5.0


def report_path_doubt(now: float, workers: Iterable[WorkerFacts]) -> str:
    """Return a sentence if more than half of all workers fell silent together, else ""."""
    speaking = [worker for worker in workers if worker.state is not WorkerState.STOPPED]
    silent = sorted(
        (worker for worker in speaking if now - worker.reported_at >= _patience(worker)),
        key=lambda worker: worker.reported_at,
    )
    together = _largest_group(silent)
    if together < LEAST_SILENT or 2 * together <= len(speaking):
        return ""
    return (
        f"{together} of {len(speaking)} workers fell silent together: the way of their reports is the suspect, "
        "so no pool shrinks and no worker is replaced until they report again; check the report Service and its "
        "certificate"
    )


def new_term_doubt(now: float, leader_since: float, interval_seconds: float, expected_workers: int) -> str:
    """Return a sentence within two intervals of a new term, if there are workers to hear from, else ""."""
    patience = max(TERM_INTERVALS * interval_seconds, LEAST_TERM_SECONDS)
    if not expected_workers or now - leader_since >= patience:
        return ""
    return f"this replica has led for less than {patience:.0f} s, so workers may not have found it yet"


def _patience(worker: WorkerFacts) -> float:
    return max(STALLED_INTERVALS * worker.interval_seconds, LEAST_SILENCE_SECONDS)


def _largest_group(silent: Sequence[WorkerFacts]) -> int:
    """Return how many, of workers sorted by their last report, lie within one window at most."""
    best = first = 0
    for last, worker in enumerate(silent):
        window = max(TOGETHER_SECONDS, 2 * worker.interval_seconds)
        while worker.reported_at - silent[first].reported_at > window:
            first += 1
        best = max(best, last - first + 1)
    return best
