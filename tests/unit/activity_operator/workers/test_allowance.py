"""How much one pod may send."""

from activity_operator.workers.allowance import AT_ONCE, LEAST, PER_SECOND, Allowances
from activity_worker.contract import MAX_REPORT_BYTES


def taken(allowances: Allowances, pod: str, size: int, *, seconds: float, every: float) -> int:
    """Return how many bytes are read of a pod that sends a report of `size` so often, for so long."""
    times = [every * number for number in range(int(seconds / every))]
    return sum(size for now in times if allowances.take(pod, size, now))


def test_an_ordinary_worker_never_notices() -> None:
    size, every = 7_000, 0.02

    assert taken(Allowances(), "a", size, seconds=60.0, every=every) == int(60.0 / every) * size


def test_the_longest_reports_as_fast_as_they_come_are_read_at_the_rate() -> None:
    read = taken(Allowances(), "a", MAX_REPORT_BYTES, seconds=60.0, every=0.001)

    assert 60 * PER_SECOND <= read <= 60 * PER_SECOND + AT_ONCE


def test_empty_reports_are_not_free() -> None:
    read = taken(Allowances(), "a", 1, seconds=10.0, every=0.0001)

    assert read <= (10 * PER_SECOND + AT_ONCE) / LEAST


def test_what_one_pod_used_up_is_not_the_others() -> None:
    allowances = Allowances(at_once=2_000, per_second=1_000)
    assert allowances.take("a", 2_000, 0.0)
    assert not allowances.take("a", 2_000, 0.5)

    assert allowances.take("b", 2_000, 0.5)
    assert allowances.take("a", 2_000, 2.0)


def test_pods_that_are_heard_no_more_are_forgotten() -> None:
    allowances = Allowances(at_once=2_000, per_second=1_000, max_pods=2)
    for pod in ("a", "b", "c"):
        allowances.take(pod, 2_000, 0.0)

    assert len(allowances._left) == 2
    assert not allowances.take("c", 2_000, 0.0)
