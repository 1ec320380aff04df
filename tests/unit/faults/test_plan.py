"""What faults are made of: names of calls, and the plan that counts them."""

import pytest

from tests.faults.calls import WORKER, aws_call, event, kube_call
from tests.faults.matrix import READS, STARTS, crashes, events, failing_calls, failing_reads, occurrences
from tests.faults.plan import ON_READS, Fault, Kind, Plan

PODS = "/api/v1/namespaces/shop/pods"
POOL = "/apis/activitypools.dev/v1alpha1/namespaces/shop/activitypools/resize"
SECRETS = "/api/v1/namespaces/system/secrets"


@pytest.mark.parametrize(
    ("method", "path", "name", "deed"),
    [
        ("PATCH", f"{POOL}/status", "PATCH activitypools/status", True),
        ("GET", POOL, "GET activitypools", False),
        ("GET", PODS, "LIST pods", False),
        ("GET", "/api/v1/pods", "LIST pods", False),
        ("DELETE", f"{PODS}/w1", "DELETE pods", True),
        ("PUT", f"{SECRETS}/lease-0a", "PUT lease-records", True),
        ("PUT", f"{SECRETS}/certificates", "PUT secrets", True),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", "POST tokenreviews", True),
    ],
)
def test_a_call_is_named_by_what_it_does_to_what(method: str, path: str, name: str, deed: bool) -> None:
    call = kube_call(method, path, {})

    assert (call.name, call.deed) == (name, deed)


def test_the_record_of_a_lease_is_told_from_another_secret_when_it_is_made() -> None:
    assert kube_call("POST", SECRETS, {}, b'{"metadata": {"name": "lease-0a"}}').name == "POST lease-records"
    assert kube_call("POST", SECRETS, {}, b'{"metadata": {"name": "certificates"}}').name == "POST secrets"


def test_a_watch_is_no_deed_and_says_of_what_it_is() -> None:
    call = kube_call("GET", "/apis/apps/v1/deployments", {"watch": "true"})

    assert (call.name, call.watches, call.deed) == ("WATCH deployments", "deployments", False)
    assert event("deployments", {"type": "ADDED"}) == "ADDED deployments"


def test_calls_to_the_service_go_by_their_operation() -> None:
    assert aws_call("AWSStepFunctions.SendTaskFailure").name == "AWS SendTaskFailure"
    assert aws_call("AWSStepFunctions.SendTaskFailure", WORKER).name == "worker SendTaskFailure"


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


def test_a_fault_may_strike_several_times_in_a_row_and_counts_once() -> None:
    fault = Fault(Kind.THROTTLED, "AWS GetActivityTask", 2, times=2)
    plan = Plan([fault])
    plan.arm()

    assert [plan.call("AWS GetActivityTask") for _ in range(4)] == [None, fault, fault, None]
    assert plan.struck == [fault]


def test_what_passes_before_the_plan_is_armed_does_not_count() -> None:
    plan = Plan([Fault(Kind.CONFLICT, "PATCH pods")])

    assert plan.call("PATCH pods") is None
    plan.arm()
    assert plan.call("PATCH pods") is not None
    assert plan.calls == ["PATCH pods"]


def test_each_write_is_crashed_before_and_after_and_what_repeats_for_ever_once() -> None:
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


def test_an_operators_and_a_workers_calls_fail_and_only_an_operator_is_crashed() -> None:
    calls = ["PATCH pods", "AWS SendTaskFailure", "worker SendTaskSuccess"]

    kinds = {name: {job.faults[0].kind for job in failing_calls("work", calls) if job.faults[0].name == name}
             for name in calls}  # fmt: skip
    assert {Kind.CONFLICT, Kind.ROTATED, Kind.TWICE, Kind.LATE_ANSWER} <= kinds["PATCH pods"]
    assert kinds["AWS SendTaskFailure"] == kinds["worker SendTaskSuccess"]
    assert Kind.CONFLICT not in kinds["worker SendTaskSuccess"]
    assert {job.faults[0].name for job in crashes("work", calls)} == {"PATCH pods", "AWS SendTaskFailure"}


def test_reads_are_struck_beside_calls_and_are_none() -> None:
    """What crashes are made of is what was written: a crash at a read is one before the next write."""
    fault = Fault(Kind.FAILED, "LIST pods")
    plan = Plan([fault])
    plan.arm()

    assert [plan.read("LIST pods"), plan.read("LIST pods"), plan.call("PATCH pods")] == [fault, None, None]
    assert (plan.calls, plan.reads) == (["PATCH pods"], ["LIST pods", "LIST pods"])


def test_each_read_of_a_start_meets_each_fault_in_one_of_the_scenarios() -> None:
    jobs = [job for name in STARTS for job in failing_reads(name)]
    met = [(job.faults[1].name, job.faults[1].kind) for job in jobs]

    assert set(met) == {(name, kind) for name in READS for kind in ON_READS}
    assert len(met) == len(set(met))
    assert all(job.faults[0] == STARTS[job.scenario] for job in jobs)
    assert not list(failing_reads("create"))
