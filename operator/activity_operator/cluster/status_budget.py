"""One budget of status writes for all pools: conditions first, counts with what is left.

Without it each active pool writes its counts every ten seconds: with 5,000 of them 500 writes a second, which is more
than the API server should serve for numbers, and enough to occupy every reconcile loop.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from activity_operator.cluster.resources import Key

#: Share of the burst that writes of counts leave to urgent writes.
URGENT_SHARE = 0.5
#: Reconcile loops that are always free of status writes, and share of the loops that writes of counts may occupy.
FREE_LOOPS = 2
COUNTS_SHARE = 0.5


class StatusBudget:
    """A token bucket with two classes: `per_second` writes, and a burst of one second.

    A write that must wait gets a place in a line, so that it asks again when its turn has come and not before. Urgent
    writes have a line of their own and use the whole bucket. Writes of counts leave a share of it to them, and of
    `reconcile_loops` too: a scale-up always finds a free loop. `clock` is monotonic seconds.
    """

    def __init__(self, per_second: float, reconcile_loops: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._burst = max(per_second, 1.0)
        self._tokens = self._burst
        self._filled_at = clock()
        self._most = {
            True: max(reconcile_loops - FREE_LOOPS, 1),
            False: max(int(reconcile_loops * COUNTS_SHARE), 1),
        }
        self._writing = 0
        #: Places by pool: whether urgent, and the time of the clock at which to ask again.
        self._places: dict[Key, tuple[bool, float]] = {}
        self._last_place = {True: float("-inf"), False: float("-inf")}

    def wait(self, key: Key, *, urgent: bool) -> float:
        """Return 0 if the pool's status may be written now, which uses up one write; else the seconds to wait."""
        now = self._clock()
        place = self._places.get(key)
        if place is not None and place[0] >= urgent and place[1] > now:
            return place[1] - now
        is_next = (place is not None and place[0] >= urgent) or self._last_place[urgent] <= now
        if is_next and self._has_room(urgent, now):
            self._places.pop(key, None)
            self._tokens -= 1.0
            return 0.0
        at = max(self._last_place[urgent], now) + 1.0 / self._per_second
        self._last_place[urgent] = at
        self._places[key] = (urgent, at)
        return at - now

    def waiting(self, key: Key) -> float:
        """Return the seconds until the pool's place in the line, 0 without one."""
        place = self._places.get(key)
        return 0.0 if place is None else max(place[1] - self._clock(), 0.0)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Count a write that is under way."""
        self._writing += 1
        try:
            yield
        finally:
            self._writing -= 1

    def forget(self, key: Key) -> None:
        """Forget the place of a pool that is gone."""
        self._places.pop(key, None)

    def forget_all(self) -> None:
        """Forget all places, at the end of a term."""
        self._places.clear()
        self._last_place = {True: float("-inf"), False: float("-inf")}

    def _has_room(self, urgent: bool, now: float) -> bool:
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        floor = 0.0 if urgent else self._burst * URGENT_SHARE
        # A place in the line is as old as the token that it waits for, so a part of a token is enough.
        return self._tokens > floor and self._writing < self._most[urgent]
