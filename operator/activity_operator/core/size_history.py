"""The sizes of the last minute, and when the pool grew last."""

from dataclasses import dataclass

#: Seconds over which the steps of `scaleDown` count.
STEP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SizeHistory:
    """The sizes of the last minute as (Unix seconds, workers), the last one at its end; when the pool grew last."""

    sizes: tuple[tuple[float, int], ...] = ()
    grown_at: float = 0.0

    @property
    def last(self) -> int | None:
        """The size decided last, None before the first decision."""
        return self.sizes[-1][1] if self.sizes else None

    def followed_by(self, workers: int, now: float) -> "SizeHistory":
        """Return the history after this size; sizes that a higher one follows are left out."""
        last = self.last
        kept = [(at, size) for at, size in self.sizes if now - at < STEP_SECONDS and size > workers]
        if last is not None and last > workers:
            # The last size applied until now.
            kept = [entry for entry in kept if entry[1] > last] + [(now, last)]
        grown = last is not None and workers > last
        return SizeHistory((*kept, (now, workers)), now if grown else self.grown_at)


NO_SIZES = SizeHistory()
