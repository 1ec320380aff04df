"""A campaign strikes every write, every event and every read of a start: what it left out, it would not judge."""

from tests.faults.matrix import READS, STARTS, crashes, events, failing_reads, occurrences
from tests.faults.plan import ON_READS, Fault, Kind, Plan


def test_a_fault_strikes_the_nth_call_of_its_name_once() -> None:
    fault = Fault(Kind.CRASH_BEFORE, "PATCH pods", 2)
    plan = Plan([fault])
    plan.arm()

    assert [plan.call(name) for name in ("PATCH pods", "PUT leases", "PATCH pods", "PATCH pods")] == [
        None,
        None,
        fault,
        None,
    ]
    assert plan.struck == [fault]


def test_each_write_crashes_before_and_after_and_endless_repeats_once() -> None:
    calls = ["PUT leases", "PATCH pods", "PUT leases", "PATCH pods", "WATCH pods"]

    assert occurrences(["PUT leases", "PATCH pods", "PUT leases", "PATCH pods"]) == [
        ("PUT leases", 1),
        ("PATCH pods", 1),
        ("PATCH pods", 2),
    ]
    assert len(list(crashes("burst", calls))) == 6


def test_each_event_is_lost_in_turn() -> None:
    jobs = list(events("create", ["ADDED pods", "ADDED pods"]))

    assert [job.faults[0].nth for job in jobs if job.faults[0].kind is Kind.EVENT_LOST] == [1, 2]


def test_each_read_of_a_start_meets_each_fault_in_one_of_the_scenarios() -> None:
    jobs = [job for name in STARTS for job in failing_reads(name)]
    met = [(job.faults[1].name, job.faults[1].kind) for job in jobs]

    assert set(met) == {(name, kind) for name in READS for kind in ON_READS}
    assert len(met) == len(set(met))
    assert all(job.faults[0] == STARTS[job.scenario] for job in jobs)
    assert not list(failing_reads("create"))
