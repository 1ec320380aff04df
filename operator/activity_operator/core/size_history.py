"""The sizes of the last minute, when the pool grew last, and whether it keeps growing."""

from dataclasses import dataclass, replace

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

    `raises` are the Unix seconds of raises above all sizes of the two starts of a pod before them, at least a second
    apart: a burst that comes again grows to its old size. `fell_at` is when the last fall began, which may go on.
    """

    sizes: tuple[tuple[float, int], ...] = ()
    grown_at: float = 0.0
    raises: tuple[float, ...] = ()
    fell_at: float = 0.0

    @property
    def last(self) -> int | None:
        """The size decided last, None before the first decision."""
        return self.sizes[-1][1] if self.sizes else None

    @property
    def falls(self) -> bool:
        """Whether the size has fallen since it grew last."""
        return self.fell_at >= self.grown_at

    def limited_to(self, workers: int | None) -> "SizeHistory":
        """Return the history with a last size of at most `workers`; None changes nothing."""
        if workers is None or not self.sizes:
            return self
        at, last = self.sizes[-1]
        return replace(self, sizes=(*self.sizes[:-1], (at, min(last, workers))))

    def keeps_growing(self, now: float, start_seconds: float | None) -> bool:
        """Whether the pool has grown again and again within two starts of a pod, as with tasks that keep coming."""
        counts = _raise_seconds(start_seconds)
        return sum(now - at < counts for at in self.raises) >= LASTING_RAISES

    def followed_by(self, workers: int, now: float, start_seconds: float | None = None) -> "SizeHistory":
        """Return the history after this size; sizes that a higher one follows are left out."""
        last, counts = self.last, _raise_seconds(start_seconds)
        highest = max((size for at, size in self.sizes if now - at < counts), default=last or 0)
        kept = [(at, size) for at, size in self.sizes if now - at < STEP_SECONDS and size > workers]
        if last is not None and last > workers:
            # The last size applied until now.
            kept = [entry for entry in kept if entry[1] > last] + [(now, last)]
        grown = last is not None and workers > last
        raises = tuple(at for at in self.raises if now - at < LONGEST_RAISE_SECONDS)
        if grown and workers > highest and (not raises or now - raises[-1] >= BETWEEN_RAISES_SECONDS):
            raises = (*raises, now)
        fell_at = now if last is not None and workers < last and not self.falls else self.fell_at
        return SizeHistory((*kept, (now, workers)), now if grown else self.grown_at, raises, fell_at)


def _raise_seconds(start_seconds: float | None) -> float:
    return min(max(RAISE_STARTS * (start_seconds or 0.0), SHORTEST_RAISE_SECONDS), LONGEST_RAISE_SECONDS)


NO_SIZES = SizeHistory()
