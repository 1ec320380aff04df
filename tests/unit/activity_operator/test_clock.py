"""Unix seconds for decisions: a step of the machine's clock moves no time window."""

import pytest

from activity_operator.clock import CATCH_UP, SlewedClock


class Machine:
    """A machine with a monotonic clock, and a wall clock that a test can set."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.offset = 1_800_000_000.0
        self.now = SlewedClock(lambda: self.offset + self.seconds, lambda: self.seconds)

    def wait(self, seconds: float) -> float:
        self.seconds += seconds
        return self.now()


def test_clock_equals_the_wall_clock_without_a_step() -> None:
    machine = Machine()

    assert [machine.wait(0.0), machine.wait(7.0)] == [1_800_000_100.0, 1_800_000_107.0]


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_step_of_the_wall_clock_does_not_show_at_once(step: float) -> None:
    machine = Machine()
    before = machine.wait(10.0)
    machine.offset += step

    assert machine.wait(0.0) == before
    assert machine.wait(60.0) - before == pytest.approx(60.0, rel=CATCH_UP)


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_step_of_the_wall_clock_is_caught_up_within_a_day(step: float) -> None:
    machine = Machine()
    machine.offset += step
    times = [machine.wait(60.0) for _ in range(24 * 60)]

    assert times == sorted(times)
    assert times[-1] == machine.offset + machine.seconds


def test_clock_advances_between_two_reads() -> None:
    machine = Machine()

    assert machine.wait(86_400.0) == 1_800_086_500.0
