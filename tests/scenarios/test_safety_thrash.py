"""Any swinging load: a pool's size reverses at most twice per stabilizationWindowSeconds."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.activity_operator.core.examples import examples
from tests.unit.activity_operator.core.load import KINDS, load_of, turns

#: Seconds of a simulated run.
RUN_SECONDS = 600


@dataclass(frozen=True)
class Swing:
    """Tasks that arrive in periods: `tasks` at once, or spread over the first half of each period."""

    period: int
    tasks: int
    at_once: bool

    def arrivals(self, at: float) -> int:
        """Return how many tasks arrive at this second."""
        phase = int(at) % self.period
        if self.at_once:
            return self.tasks if phase == 0 else 0
        half = max(1, self.period // 2)
        return (phase + 1) * self.tasks // half - phase * self.tasks // half if phase < half else 0


swings = st.builds(Swing, st.integers(2, 300), st.integers(1, 60), st.booleans())


@examples(8)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    swing=swings,
    seconds=st.sampled_from([0.5, 3.0, 20.0, 45.0]),
    window=st.sampled_from([5, 20, 60, 120]),
    zero_after=st.sampled_from([0, 10, 300]),
    most=st.integers(1, 25),
    slots=st.integers(1, 3),
)
def test_swinging_backlog_reverses_the_size_at_most_twice_a_window(
    kind: str, swing: Swing, seconds: float, window: int, zero_after: int, most: int, slots: int
) -> None:
    load = load_of(kind, window=window, zero_after=zero_after, maxWorkers=most, slotsPerWorker=slots)
    load.seconds = seconds
    load.run(RUN_SECONDS, swing.arrivals)

    assert load.reversals() <= 2 * RUN_SECONDS / window
    assert turns(load.replicas) <= 4 * RUN_SECONDS / window, "the writes of replicas turn more often than the size"
    assert load.harness.truth.taken == []
    assert max(load.sizes) <= most
