"""PURE: which jobs under way have lost their lock, and not only not got it yet.

A worker takes a job first and locks it a moment later: a job without a lock may just have been taken. It is lost when
every look for as long as `gap_seconds` found it so, and nothing put it back in between.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class UnlockedJob(NamedTuple):
    """A job under way without a lock. `retries` is how often it was put back, as its hash has it, "" for never."""

    flow: str
    queue: str
    job_id: str
    retries: str


@dataclass(frozen=True, slots=True)
class UnlockedJobs:
    """Since when each job was found without a lock in every look, in seconds of the clock that the looks use.

    A job with other retries is another entry: it was put back and taken again.
    """

    since: Mapping[UnlockedJob, float]

    def after_look(self, unlocked: Iterable[UnlockedJob], now: float) -> "UnlockedJobs":
        """Return the unlocked jobs after another look. A job that has a lock now, or is gone, is forgotten."""
        return UnlockedJobs({job: self.since.get(job, now) for job in unlocked})

    def lost(self, now: float, gap_seconds: float) -> list[UnlockedJob]:
        """Return the jobs that have been without a lock for `gap_seconds`."""
        return [job for job, since in self.since.items() if now - since >= gap_seconds]

    def without(self, settled: Iterable[UnlockedJob]) -> "UnlockedJobs":
        """Return the unlocked jobs without those that were dealt with."""
        gone = set(settled)
        return UnlockedJobs({job: since for job, since in self.since.items() if job not in gone})


NO_JOBS = UnlockedJobs({})
