"""The pauses between tries of what has failed."""

import pytest

from activity_worker.wire.backoff import pause_after


@pytest.mark.parametrize(("failures", "seconds"), [(1, 0.5), (2, 1.0), (3, 2.0), (5, 8.0), (6, 10.0), (100_000, 10.0)])
def test_pause_doubles_up_to_its_maximum(failures: int, seconds: float) -> None:
    assert pause_after(failures, first_seconds=0.5, max_seconds=10.0) == seconds


def test_maximum_below_the_first_pause_is_the_pause() -> None:
    assert pause_after(1, first_seconds=0.5, max_seconds=0.1) == 0.1
