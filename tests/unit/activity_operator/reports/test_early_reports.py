"""Which workers may report a change of their slots before their interval ends."""

from activity_operator.reports.early_reports import POOL_AT_ONCE, POOL_PER_SECOND, EarlyReports
from activity_operator.reports.worker_registry import WorkerRegistry
from activity_worker.contract import Reply
from tests.unit.activity_operator.reports.builders import report

POOL = ("media", "resize")


def granted(early: EarlyReports, number: int, now: float, key: tuple[str, str] = POOL) -> int:
    """Return how many of `number` grants the pool gets at the time `now`."""
    return sum(early.grant(key, now) for _ in range(number))


def test_pool_has_a_bucket_of_its_own() -> None:
    early = EarlyReports(rate=200.0)

    assert granted(early, 100, 0.0) == POOL_AT_ONCE
    assert granted(early, 100, 0.0, ("media", "other")) == POOL_AT_ONCE
    assert granted(early, 100, 1.0) == POOL_PER_SECOND


def test_all_pools_together_stay_below_half_the_report_rate() -> None:
    early = EarlyReports(rate=200.0)
    pools = [("media", f"pool-{number}") for number in range(100)]
    assert sum(granted(early, 20, 0.0, key) for key in pools) == 200

    assert sum(granted(early, 20, 10.0, key) for key in pools) == 200
    assert sum(granted(early, 20, 11.0, key) for key in pools) == 100


def test_unused_grant_is_given_back() -> None:
    early = EarlyReports(rate=200.0)
    granted(early, 20, 0.0)
    early.give_back(POOL, 0.0)

    assert granted(early, 2, 0.0) == 1


def test_quiet_workers_keep_their_grants_in_any_fleet() -> None:
    registry = WorkerRegistry(lambda *_: None, jitter=lambda: 0.0)
    for number in range(2_000):
        registry.record(report(namespace="other", pool=f"{number % 100}", pod_uid=f"{number}"), 100.0)
    for second in range(100):
        for number in range(4):
            one = report(pod_uid=f"uid-{number}", sequence=1 + second)
            receipt = registry.record(one, 1000.0 + 10.1 * second)
            assert receipt.early_report


def test_worker_that_reports_early_uses_up_the_pools_bucket() -> None:
    registry = WorkerRegistry(lambda *_: None, jitter=lambda: 0.0)
    reports = [report(sequence=number + 1, busy=number % 2) for number in range(40)]
    receipts = [registry.record(one, 100.0 + number / 100) for number, one in enumerate(reports)]

    assert sum(receipt.early_report for receipt in receipts) <= POOL_AT_ONCE + 0.4 * POOL_PER_SECOND + 1
    assert not receipts[-1].early_report


def test_grant_is_part_of_the_reply_only_if_it_is_known() -> None:
    assert "earlyReport" not in Reply(1, 1.0).to_wire()
    for value in (True, False, None):
        assert Reply.from_wire(Reply(1, 1.0, early_report=value).to_wire()).early_report is value
