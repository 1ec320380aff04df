"""Somebody else who writes a pool's Deployments again and again: noticed, named, and not answered blow for blow.

An autoscaler, a GitOps tool, a person in a loop. A single edit is put back at once. From the third within two minutes
on, each Deployment of the pool is written once in a quarter of a minute at most, for whatever reason, until nobody has
edited it for two minutes: two controllers that answer each other at once would write without end.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from activity_operator.cluster import field_managers
from activity_operator.core.observation import DeploymentFacts

#: Edits within a window from which they are a contest, and the window's seconds: it also ends so long after the last.
EDITS = 3
WINDOW_SECONDS = 120.0
#: Seconds between two writes to a contested Deployment.
PACE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Edit:
    """What somebody did to a Deployment: `by` is the field manager, "" when unknown; `find_edits` what to say of it."""

    name: str
    by: str
    note: str


@dataclass(slots=True)
class _EditConflict:
    edits: deque[float] = field(default_factory=lambda: deque(maxlen=EDITS))
    by: str = ""
    drifted: bool = False
    written: float = float("-inf")

    def open(self, now: float) -> bool:
        """Whether edits came so often, and the last of them lately."""
        often = len(self.edits) == EDITS and self.edits[-1] - self.edits[0] <= WINDOW_SECONDS
        return often and now - self.edits[-1] < WINDOW_SECONDS


class EditConflicts:
    """The contests of one pool, by Deployment. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._by_name: dict[str, _EditConflict] = {}

    def find_edits(
        self, deployments: Iterable[DeploymentFacts], wrote: Mapping[str, int], now: float
    ) -> Iterator[Edit]:
        """Yield every edit that is new. `wrote` are the replicas that we wrote last, by Deployment.

        What is to be said of a drift or a deletion says who puts it back.
        """
        for found in deployments:
            ours = wrote.get(found.name, found.replicas)
            if found.replicas != ours:
                note = f"was scaled by somebody ({ours} -> {found.replicas}); the pool decides its size"
                note += field_managers.named(found.scaled_by)
                yield self.edited(found.name, found.scaled_by, note, now)
            conflict = self._by_name.get(found.name)
            if found.drifted and not (conflict is not None and conflict.drifted):
                yield self.edited(found.name, found.edited_by, "", now)
            if (conflict := self._by_name.get(found.name)) is not None:
                conflict.drifted = found.drifted

    def edited(self, name: str, by: str, note: str, now: float) -> Edit:
        """Take note of one edit."""
        conflict = self._by_name.setdefault(name, _EditConflict())
        conflict.edits.append(now)
        conflict.by = by or conflict.by
        return Edit(name, by, note)

    def wrote(self, name: str, now: float) -> None:
        """Take note of a write of ours: what drifts after it drifted anew."""
        if (conflict := self._by_name.get(name)) is not None:
            conflict.written, conflict.drifted = now, False

    def wait(self, name: str, now: float) -> float:
        """Return the seconds until the Deployment may be written, 0 when nobody contests it."""
        conflict = self._by_name.get(name)
        if conflict is None or not conflict.open(now):
            return 0.0
        return max(0.0, conflict.written + PACE_SECONDS - now)

    def open(self, name: str, now: float) -> bool:
        """Whether somebody contests the Deployment."""
        return name in self._by_name and self._by_name[name].open(now)

    def message(self, now: float) -> str:
        """Return what to say of the contests, the same for as long as they last; "" when there is none."""
        opened = sorted((name, conflict.by) for name, conflict in self._by_name.items() if conflict.open(now))
        if not opened:
            return ""
        who = " and ".join(sorted({by for _, by in opened if by})) or "somebody"
        names = ", ".join(name for name, _ in opened[:3])
        return (
            f"Deployment {names} is also written by {who}, again and again: what the pool declares is put back once in "
            f"{PACE_SECONDS:.0f} s at most; exclude the Deployment there, or have the ActivityPool scaled instead"
        )

    def ends_in(self, now: float) -> float | None:
        """Return the seconds until a contest ends if nobody edits any more, None without one; forget what is over."""
        self._by_name = {
            name: conflict
            for name, conflict in self._by_name.items()
            if conflict.drifted or now - conflict.edits[-1] < WINDOW_SECONDS
        }
        ends = [c.edits[-1] + WINDOW_SECONDS - now for c in self._by_name.values() if c.open(now)]
        return min(ends, default=None)
