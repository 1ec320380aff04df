"""Faults of the fake occur the given number of times, and rate limits refill."""

import pytest

from activity_worker.testing.fake_clock import VirtualClock
from activity_worker.testing.fake_faults import ANY, FakeFaults, Fault
from activity_worker.testing.fake_tasks import FakeServiceError


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def faults(clock: VirtualClock) -> FakeFaults:
    return FakeFaults(clock.now)


def refused(faults: FakeFaults, operation: str) -> bool:
    try:
        faults.next_fault(operation)
    except FakeServiceError:
        return True
    return False


def test_fault_occurs_in_its_operation_the_given_number_of_times(faults: FakeFaults) -> None:
    faults.inject("A", Fault.DENY, 2)

    assert not refused(faults, "B")
    assert [refused(faults, "A") for _ in range(3)] == [True, True, False]
    assert faults.seen == {"A:deny": 2}


def test_fault_without_a_number_occurs_until_cleared(faults: FakeFaults) -> None:
    faults.inject(ANY, Fault.SERVER_ERROR, None)
    assert [refused(faults, name) for name in "ABCDE"] == [True] * 5

    faults.clear()

    assert not refused(faults, "A")


def test_faults_that_the_server_performs_are_returned(faults: FakeFaults) -> None:
    faults.inject("A", Fault.DROP_REPLY)
    faults.inject("A", Fault.HANG)

    assert [faults.next_fault("A") for _ in range(3)] == [Fault.DROP_REPLY, Fault.HANG, None]


def test_rate_limit_allows_its_burst_and_then_its_rate(faults: FakeFaults, clock: VirtualClock) -> None:
    faults.throttle("A", per_second=2, burst=3)
    assert [refused(faults, "A") for _ in range(4)] == [False, False, False, True]

    clock.advance(1)

    assert [refused(faults, "A") for _ in range(3)] == [False, False, True]
