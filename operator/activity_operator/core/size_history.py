"""The sizes of the last minute, when the pool grew last, and whether it keeps growing."""

from dataclasses import dataclass

#: Seconds over which the steps of `scaleDown` count.
STEP_SECONDS = 60.0
#: Seconds for which a raise counts, least seconds between two that do, and how many make lasting growth: a burst that
#: comes at once is counted within a second or two.
RAISE_SECONDS, BETWEEN_RAISES_SECONDS, LASTING_RAISES = 10.0, 1.0, 3


@dataclass(frozen=True, slots=True)
class SizeHistory:
    """The sizes of the last minute as (Unix seconds, workers), the last one at its end; when the pool grew last.

    `raises` are the Unix seconds of raises in the last ten seconds, at least a second apart.
    """

    sizes: tuple[tuple[float, int], ...] = ()
    grown_at: float = 0.0
    raises: tuple[float, ...] = ()

    @property
    def last(self) -> int | None:
        """The size decided last, None before the first decision."""
        return self.sizes[-1][1] if self.sizes else None

    def keeps_growing(self, now: float) -> bool:
        """Whether the pool has grown again and again in the last seconds, as with tasks that keep coming."""
        return sum(now - at < RAISE_SECONDS for at in self.raises) >= LASTING_RAISES

    def followed_by(self, workers: int, now: float) -> "SizeHistory":
        """Return the history after this size; sizes that a higher one follows are left out."""
        last = self.last
        kept = [(at, size) for at, size in self.sizes if now - at < STEP_SECONDS and size > workers]
        if last is not None and last > workers:
            # The last size applied until now.
            kept = [entry for entry in kept if entry[1] > last] + [(now, last)]
        grown = last is not None and workers > last
        raises = tuple(at for at in self.raises if now - at < RAISE_SECONDS)
        if grown and (not raises or now - raises[-1] >= BETWEEN_RAISES_SECONDS):
            raises = (*raises, now)
        return SizeHistory((*kept, (now, workers)), now if grown else self.grown_at, raises)


NO_SIZES = SizeHistory()
