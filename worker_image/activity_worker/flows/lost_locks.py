"""PURE: which jobs under way have lost their lock, and not only not got it yet.

A worker takes a job first and locks it a moment later: a job without a lock may just have been taken. It is lost when
every look for as long as `gap_seconds` found it so.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: (flow, queue, id) of a job under way.
Suspect = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Since when each job was found without a lock in every look, in seconds of the clock that the looks use."""

    since: Mapping[Suspect, float]

    def looked(self, unlocked: Iterable[Suspect], now: float) -> "Suspicion":
        """Return the suspicion after another look; whoever has a lock now, or is gone, is forgotten."""
        return Suspicion({suspect: self.since.get(suspect, now) for suspect in unlocked})

    def lost(self, now: float, gap_seconds: float) -> list[Suspect]:
        """Return who has been without a lock for long enough."""
        return [suspect for suspect, since in self.since.items() if now - since >= gap_seconds]

    def without(self, settled: Iterable[Suspect]) -> "Suspicion":
        """Return the suspicion without those that were dealt with: taken again, they are under no suspicion."""
        gone = set(settled)
        return Suspicion({suspect: since for suspect, since in self.since.items() if suspect not in gone})


NOBODY = Suspicion({})
