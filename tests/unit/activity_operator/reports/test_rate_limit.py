"""The rate limit of reports per pod."""

from activity_operator.reports.rate_limit import AT_ONCE, LEAST, PER_SECOND, ByteLimit
from activity_worker.contract import MAX_REPORT_BYTES


def accepted_bytes(allowances: ByteLimit, pod: str, size: int, *, seconds: float, every: float) -> int:
    """Return how many bytes are accepted from a pod that sends `size` bytes every `every` seconds."""
    times = [every * number for number in range(int(seconds / every))]
    return sum(size for now in times if allowances.take(pod, size, now))


def test_ordinary_worker_is_not_limited() -> None:
    size, every = 7_000, 0.02

    assert accepted_bytes(ByteLimit(), "a", size, seconds=60.0, every=every) == int(60.0 / every) * size


def test_fast_reports_of_maximum_size_are_read_at_the_rate_limit() -> None:
    read = accepted_bytes(ByteLimit(), "a", MAX_REPORT_BYTES, seconds=60.0, every=0.001)

    assert 60 * PER_SECOND <= read <= 60 * PER_SECOND + AT_ONCE


def test_tiny_reports_cost_a_minimum() -> None:
    read = accepted_bytes(ByteLimit(), "a", 1, seconds=10.0, every=0.0001)

    assert read <= (10 * PER_SECOND + AT_ONCE) / LEAST


def test_each_pod_has_its_own_limit() -> None:
    allowances = ByteLimit(at_once=2_000, per_second=1_000)
    assert allowances.take("a", 2_000, 0.0)
    assert not allowances.take("a", 2_000, 0.5)

    assert allowances.take("b", 2_000, 0.5)
    assert allowances.take("a", 2_000, 2.0)


def test_oldest_pod_is_forgotten_above_the_maximum() -> None:
    allowances = ByteLimit(at_once=2_000, per_second=1_000, max_pods=2)
    for pod in ("a", "b", "c"):
        allowances.take(pod, 2_000, 0.0)

    assert len(allowances._buckets._left) == 2
    assert not allowances.take("c", 2_000, 0.0)


def test_pods_that_are_gone_leave_no_bucket_behind() -> None:
    limit = ByteLimit()
    for number in range(1_000):
        limit.take(f"pod-{number}", MAX_REPORT_BYTES, now=float(number))

    refilled_after = MAX_REPORT_BYTES / PER_SECOND
    assert len(limit._buckets._left) <= refilled_after + 1
