"""Faults that wait for what suits them."""

from tests.clock import Clock
from tests.faults.plan import Fault, Kind
from tests.soak.ambush import Ambush
from tests.soak.striker import EVERY, to_api_server


def test_a_trap_strikes_as_often_as_it_may_and_only_what_suits_it() -> None:
    plan = Ambush(Clock())
    trap = plan.lay(Kind.CONFLICT, lambda name: "pods" in name, 2, 5.0)

    assert plan.call("PATCH deployments") is None
    assert plan.call("PATCH pods") == Fault(Kind.CONFLICT, "PATCH pods", 1)
    assert plan.call("DELETE pods") == Fault(Kind.CONFLICT, "DELETE pods", 2)
    assert plan.call("PATCH pods") is None
    assert (trap.struck, trap.left) == (2, 0)


def test_reads_fall_into_traps_for_calls() -> None:
    plan = Ambush(Clock())
    plan.lay(Kind.CALL_LOST, to_api_server, EVERY, 5.0)

    assert [plan.read("LIST pods"), plan.call("AWS GetActivityTask")] == [Fault(Kind.CALL_LOST, "LIST pods", 1), None]


def test_a_trap_lies_for_so_long_or_until_it_is_lifted() -> None:
    clock = Clock()
    plan = Ambush(clock)
    plan.lay(Kind.HANG, lambda _: True, 1, 5.0)
    clock.now = 6.0
    assert plan.call("PATCH pods") is None

    plan.lay(Kind.HANG, lambda _: True, 1, 5.0)
    plan.lift()
    assert plan.call("PATCH pods") is None


def test_events_and_calls_have_traps_of_their_own() -> None:
    plan = Ambush(Clock())
    plan.lay(Kind.EVENT_LOST, lambda _: True, 1, 5.0)

    assert plan.call("PATCH pods") is None
    assert plan.event("ADDED pods") == Fault(Kind.EVENT_LOST, "ADDED pods", 1)


def test_writes_are_counted_without_what_comes_for_as_long_as_a_process_lives() -> None:
    plan = Ambush(Clock())
    for name in ("PUT leases", "POST tokenreviews", "WATCH pods", "AWS GetActivityTask", "PATCH pods", "PATCH pods"):
        plan.call(name)

    assert plan.writes == {"PATCH pods": 2}
