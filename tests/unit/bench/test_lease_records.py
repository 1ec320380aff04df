"""The writes of shared lease records are counted as an API server and etcd would."""

import pytest

from activity_operator.leases.model import RECORD_BYTES
from tests.bench.lease_records import LeaseTimes, Writes, lease_times, rows, shared, single

PAYLOAD = 1000


def test_lease_of_its_own_is_written_three_times_and_stored_twice() -> None:
    assert single([LeaseTimes(0, 1, 2)], PAYLOAD) == Writes(3, 2 * (RECORD_BYTES + PAYLOAD))
    assert shared([LeaseTimes(0, 1, 2)], 0.05, PAYLOAD) == single([LeaseTimes(0, 1, 2)], PAYLOAD)


def test_first_record_is_written_at_once_and_later_ones_together() -> None:
    leases = [LeaseTimes(0.01 * number, 5.0, 9.0) for number in range(5)]

    # A record of one lease and a shared one of four; their owners, and their removals.
    sizes = [RECORD_BYTES + PAYLOAD] * 2 + [RECORD_BYTES + 4 * PAYLOAD] * 2
    assert shared(leases, 0.05, PAYLOAD) == Writes(6, sum(sizes))


def test_each_owner_at_its_own_time_stores_the_whole_record_again() -> None:
    leases = [LeaseTimes(0.0, 1.0 + number, 9.0) for number in range(5)]

    assert shared(leases, 0.05, PAYLOAD) == Writes(7, 6 * (RECORD_BYTES + 5 * PAYLOAD))


def test_shared_record_has_ten_leases_at_most() -> None:
    leases = [LeaseTimes(0.0, 1.0, 9.0) for _ in range(25)]

    assert shared(leases, 0.05, PAYLOAD).requests == 3 * 3


def test_simulated_burst_at_zero_has_a_lease_for_each_task() -> None:
    found = lease_times("cron40", 3.0, 90.0)

    assert len(found) == 40
    assert all(one.recorded <= one.claimed < one.ended for one in found)


@pytest.mark.parametrize("leases", [[], [LeaseTimes(0.0, 1.0, 2.0)]])
def test_each_trace_gets_a_row_for_each_wait(leases: list[LeaseTimes]) -> None:
    assert [row.what[:5] for row in rows([("burst", leases)])] == ["burst", "burst"]
