"""Whatever swings, a pool turns around at most twice in a window: two reversals per stabilizationWindowSeconds."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.activity_operator.core.load import KINDS, load_of, turns

#: Seconds of a story.
STORY = 600


@dataclass(frozen=True)
class Swing:
    """Tasks that come and stop coming: `tasks` at once, or one after the other in the first half of each period."""

    period: int
    tasks: int
    at_once: bool

    def arrivals(self, at: float) -> int:
        """Return how many tasks come at this second."""
        phase = int(at) % self.period
        if self.at_once:
            return self.tasks if phase == 0 else 0
        half = max(1, self.period // 2)
        return (phase + 1) * self.tasks // half - phase * self.tasks // half if phase < half else 0


swings = st.builds(Swing, st.integers(2, 300), st.integers(1, 60), st.booleans())


@settings(max_examples=20, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    swing=swings,
    seconds=st.sampled_from([0.5, 3.0, 20.0, 45.0]),
    window=st.sampled_from([5, 20, 60, 120]),
    zero_after=st.sampled_from([0, 10, 300]),
    most=st.integers(1, 25),
    slots=st.integers(1, 3),
)
def test_a_swinging_backlog_turns_the_size_around_twice_a_window_at_most(
    kind: str, swing: Swing, seconds: float, window: int, zero_after: int, most: int, slots: int
) -> None:
    load = load_of(kind, window=window, zero_after=zero_after, maxWorkers=most, slotsPerWorker=slots)
    load.seconds = seconds
    load.run(STORY, swing.arrivals)

    assert load.reversals() <= 2 * STORY / window
    assert turns(load.replicas) <= 4 * STORY / window, "the writes of replicas turn more often than the size"
    assert load.world.truth.taken == []
    assert max(load.sizes) <= most
