"""Unix seconds for deciding: a step of the machine's clock moves no window."""

import pytest

from activity_operator.wall import CATCH_UP, SteadyWall


class Machine:
    """A clock that counts, and a wall that may be set."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.offset = 1_800_000_000.0
        self.now = SteadyWall(lambda: self.offset + self.seconds, lambda: self.seconds)

    def wait(self, seconds: float) -> float:
        self.seconds += seconds
        return self.now()


def test_it_is_the_wall_as_long_as_nobody_sets_it() -> None:
    machine = Machine()

    assert [machine.wait(0.0), machine.wait(7.0)] == [1_800_000_100.0, 1_800_000_107.0]


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_step_of_the_wall_does_not_show(step: float) -> None:
    machine = Machine()
    before = machine.wait(10.0)
    machine.offset += step

    assert machine.wait(0.0) == before
    assert machine.wait(60.0) - before == pytest.approx(60.0, rel=CATCH_UP)


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_step_is_made_up_within_a_day_and_not_overdone(step: float) -> None:
    machine = Machine()
    machine.offset += step
    times = [machine.wait(60.0) for _ in range(24 * 60)]

    assert times == sorted(times)
    assert times[-1] == machine.offset + machine.seconds


def test_it_goes_on_while_nobody_asks() -> None:
    machine = Machine()

    assert machine.wait(86_400.0) == 1_800_086_500.0
