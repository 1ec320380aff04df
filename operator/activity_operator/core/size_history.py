"""The sizes of the last minute, when the pool grew last, and whether it keeps growing."""

from dataclasses import dataclass

#: Seconds over which the steps of `scaleDown` count.
STEP_SECONDS = 60.0
#: Starts of a pod for which a raise counts, and the bounds in seconds: what grows within two starts grows for each pod.
RAISE_STARTS, SHORTEST_RAISE_SECONDS, LONGEST_RAISE_SECONDS = 2.0, 10.0, 60.0
#: Least seconds between two raises that count, and how many make lasting growth: a burst that comes at once is counted
#: within a second or two.
BETWEEN_RAISES_SECONDS, LASTING_RAISES = 1.0, 3


@dataclass(frozen=True, slots=True)
class SizeHistory:
    """The sizes of the last minute as (Unix seconds, workers), the last one at its end; when the pool grew last.

    `raises` are the Unix seconds of raises in the last minute, at least a second apart.
    """

    sizes: tuple[tuple[float, int], ...] = ()
    grown_at: float = 0.0
    raises: tuple[float, ...] = ()

    @property
    def last(self) -> int | None:
        """The size decided last, None before the first decision."""
        return self.sizes[-1][1] if self.sizes else None

    def keeps_growing(self, now: float, start_seconds: float | None) -> bool:
        """Whether the pool has grown again and again within two starts of a pod, as with tasks that keep coming."""
        counts = min(max(RAISE_STARTS * (start_seconds or 0.0), SHORTEST_RAISE_SECONDS), LONGEST_RAISE_SECONDS)
        return sum(now - at < counts for at in self.raises) >= LASTING_RAISES

    def followed_by(self, workers: int, now: float) -> "SizeHistory":
        """Return the history after this size; sizes that a higher one follows are left out."""
        last = self.last
        kept = [(at, size) for at, size in self.sizes if now - at < STEP_SECONDS and size > workers]
        if last is not None and last > workers:
            # The last size applied until now.
            kept = [entry for entry in kept if entry[1] > last] + [(now, last)]
        grown = last is not None and workers > last
        raises = tuple(at for at in self.raises if now - at < LONGEST_RAISE_SECONDS)
        if grown and (not raises or now - raises[-1] >= BETWEEN_RAISES_SECONDS):
            raises = (*raises, now)
        return SizeHistory((*kept, (now, workers)), now if grown else self.grown_at, raises)


NO_SIZES = SizeHistory()
