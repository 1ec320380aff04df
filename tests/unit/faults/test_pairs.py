"""Two faults in one run: which pairs are made."""

from tests.faults.pairs import pairs
from tests.faults.plan import Fault, Kind

CALLS = ["PATCH pods", "PATCH pods", "AWS SendTaskFailure", "worker SendTaskSuccess", "WATCH pods", "PUT leases"]
EVENTS = ["ADDED pods", "MODIFIED pods"]


def test_every_write_meets_a_crash_in_its_recovery_alone_and_with_a_standby() -> None:
    jobs = list(pairs("burst", CALLS, EVENTS))
    twice = [job for job in jobs if {fault.kind for fault in job.faults} == {Kind.CRASH_AFTER, Kind.CRASH_BEFORE}]

    assert {(job.faults[0].name, job.faults[0].nth, job.replicas) for job in twice} == {
        (name, nth, replicas)
        for name, nth in (("PATCH pods", 1), ("PATCH pods", 2), ("AWS SendTaskFailure", 1), ("PUT leases", 1))
        for replicas in (1, 2)
    }


def test_a_pair_is_of_two_different_calls_or_events() -> None:
    for job in pairs("burst", CALLS, EVENTS):
        first, second = job.faults

        assert (first.name, first.nth) != (second.name, second.nth)
        assert "WATCH pods" not in {first.name, second.name}


def test_a_workers_trouble_comes_beside_an_operators_crash() -> None:
    jobs = [job for job in pairs("work", CALLS, EVENTS) if job.faults[1].name.startswith("worker")]

    assert {job.faults[0].kind for job in jobs} == {Kind.CRASH_AFTER}
    assert len({job.faults[1].kind for job in jobs}) > 1


def test_a_lost_event_is_looked_for_by_an_early_sweep() -> None:
    jobs = [job for job in pairs("burst", CALLS, EVENTS) if job.faults[1].kind is Kind.EVENT_LOST]

    assert {job.faults[1].name for job in jobs} == set(EVENTS)
    assert all(job.sweep_seconds < 300 for job in jobs)


def test_one_write_alone_has_no_other_after_it() -> None:
    faults = {fault for job in pairs("create", ["PATCH pods"], ["ADDED pods"]) for fault in job.faults}

    assert Fault(Kind.CRASH_AFTER, "PATCH pods", 1) in faults
    assert {fault.nth for fault in faults} <= {1, 2}
