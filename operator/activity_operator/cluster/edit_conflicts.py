"""Detects other field managers that edit a pool's Deployments repeatedly, and slows the operator's own writes down.

Such a manager is an autoscaler, a GitOps tool, or a person with a loop. The operator reverts a single edit at once.
From the third edit of a Deployment within two minutes on, it writes that Deployment at most every 15 seconds, until
two minutes have passed without an edit. Otherwise two controllers would overwrite each other without end.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from activity_operator.cluster import field_managers
from activity_operator.core.observation import DeploymentFacts

#: Edits within a window that make a conflict, and the window's seconds; a conflict ends a window after its last edit.
EDITS = 3
WINDOW_SECONDS = 120.0
#: Minimum seconds between two writes to a Deployment with an edit conflict.
PACE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Edit:
    """A foreign edit of a Deployment: `by` is the field manager ("" if unknown), `note` the Event's text, or ""."""

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
        """Return whether the last `EDITS` edits fell into one window that has not ended yet."""
        often = len(self.edits) == EDITS and self.edits[-1] - self.edits[0] <= WINDOW_SECONDS
        return often and now - self.edits[-1] < WINDOW_SECONDS


class EditConflicts:
    """The edit conflicts of one pool, by Deployment. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._by_name: dict[str, _EditConflict] = {}

    def find_edits(
        self, deployments: Iterable[DeploymentFacts], wrote: Mapping[str, int], now: float
    ) -> Iterator[Edit]:
        """Yield each new edit. `wrote` has the replicas that the operator wrote last, by Deployment.

        Edits of other fields have no note here: the applier emits their Event when it reverts them.
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
        """Record an edit and return it."""
        conflict = self._by_name.setdefault(name, _EditConflict())
        conflict.edits.append(now)
        conflict.by = by or conflict.by
        return Edit(name, by, note)

    def wrote(self, name: str, now: float) -> None:
        """Record a write of the operator: a drift after it is a new edit."""
        if (conflict := self._by_name.get(name)) is not None:
            conflict.written, conflict.drifted = now, False

    def wait(self, name: str, now: float) -> float:
        """Return the seconds until the operator may write the Deployment, 0 without a conflict."""
        conflict = self._by_name.get(name)
        if conflict is None or not conflict.open(now):
            return 0.0
        return max(0.0, conflict.written + PACE_SECONDS - now)

    def open(self, name: str, now: float) -> bool:
        """Return whether the Deployment has an edit conflict."""
        return name in self._by_name and self._by_name[name].open(now)

    def message(self, now: float) -> str:
        """Return the condition message about the conflicts, "" without one; it stays the same while they last."""
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
        """Return the seconds until the first conflict ends without further edits, or None; forget ended conflicts."""
        self._by_name = {
            name: conflict
            for name, conflict in self._by_name.items()
            if conflict.drifted or now - conflict.edits[-1] < WINDOW_SECONDS
        }
        ends = [c.edits[-1] + WINDOW_SECONDS - now for c in self._by_name.values() if c.open(now)]
        return min(ends, default=None)
