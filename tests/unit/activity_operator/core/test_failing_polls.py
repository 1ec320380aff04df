"""A worker that cannot poll although others can is replaced, one at a time; a pod that does not come is named."""

from dataclasses import replace
from typing import Any

import pytest

from activity_operator.core.decide import decide
from activity_operator.core.decision import DeletePod, EmitEvent, ScalingMemory
from activity_operator.core.failing_polls import NO_FAILING_POLLS, REPLACE_SECONDS, FailingPolls, recheck_times, watched
from activity_operator.core.observation import WorkerFacts
from activity_operator.core.situation import situation_of
from activity_worker.contract import PollFault, PollTrouble
from tests.unit.activity_operator.core.builders import NOW, busy, observed, pending, pool, worker

DENIED = PollTrouble(PollFault.DENIED, "AccessDeniedException")
LONG_AGO = FailingPolls({"b1": NOW - REPLACE_SECONDS, "b2": NOW - REPLACE_SECONDS - 5})

RECENT = FailingPolls({"b1": NOW - 60})


def failing(name: str, **more: Any) -> WorkerFacts:
    """Return a worker whose polls fail."""
    return worker(name, **{"poll_trouble": DENIED, "open_polls": 0, **more})


def replaced(*reports: WorkerFacts, before: FailingPolls = LONG_AGO) -> str:
    """Return the name of the pod that is replaced, "" if none is."""
    chosen = watched(situation_of(pool(), observed(*reports)), before)[1]
    return "" if chosen is None else chosen.pod.name


def test_worker_that_could_not_poll_for_long_is_replaced() -> None:
    assert replaced(failing("b1"), worker("w1"), busy("w2")) == "b1"


def test_worker_that_could_not_poll_for_a_moment_stays() -> None:
    assert replaced(failing("b1"), worker("w1"), busy("w2"), before=NO_FAILING_POLLS) == ""

    reports = observed(failing("b1"), worker("w1"), busy("w2"))
    after, _ = watched(situation_of(pool(), reports), NO_FAILING_POLLS)
    assert list(recheck_times(after)) == [NOW + REPLACE_SECONDS]


def test_worker_that_polls_again_is_forgotten() -> None:
    after, _ = watched(situation_of(pool(), observed(worker("b1"), worker("w1"))), LONG_AGO)

    assert after.since == {}


@pytest.mark.parametrize(
    "first",
    [
        failing("b1", busy=1, slots=2),
        failing("b1", poll_trouble=PollTrouble(PollFault.THROTTLED, "ThrottlingException")),
    ],
    ids=["with a task", "throttled"],
)
def test_worker_with_a_task_or_throttled_polls_is_not_replaced(first: WorkerFacts) -> None:
    assert replaced(first, worker("w1"), busy("w2")) == ""


def test_no_worker_is_replaced_while_most_of_them_cannot_poll() -> None:
    assert replaced(failing("b1"), failing("b2"), worker("w1"), worker("w2")) == ""


def test_time_counts_only_while_most_workers_can_poll() -> None:
    broken, _ = watched(situation_of(pool(), observed(failing("b1"), failing("w1"))), RECENT)
    mended, chosen = watched(situation_of(pool(), observed(failing("b1"), worker("w1"), worker("w2"))), broken)

    assert (chosen, broken.since) == (None, {})
    assert mended.since == {"b1": NOW}


def test_workers_are_replaced_one_at_a_time_the_longest_first() -> None:
    reports = (failing("b1"), failing("b2"), worker("w1"), worker("w2"), worker("w3"))
    after, chosen = watched(situation_of(pool(), observed(*reports)), LONG_AGO)

    assert chosen is not None
    assert chosen.pod.name == "b2"
    assert replaced(*reports, before=after) == ""
    assert replaced(*reports, before=replace(after, replaced_at=NOW - REPLACE_SECONDS)) == "b1"


def test_replacement_deletes_the_pod_and_says_why() -> None:
    reports = observed(failing("b1"), worker("w1"), busy("w2"))
    actions = decide(pool(), reports, ScalingMemory(failing_polls=LONG_AGO)).actions
    (event,) = [one for one in actions if isinstance(one, EmitEvent) and one.reason == "FailingWorkerDeleted"]

    assert DeletePod("b1", "b1") in actions
    assert event.message == (
        "worker b1 could not poll for 120 s while others can (AccessDeniedException); "
        "its pod is deleted, and another one starts"
    )


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"unschedulable": "0/3 nodes are available"}, "the scheduler finds no node for it"),
        ({"waiting_reason": "ImagePullBackOff"}, "its container waits (ImagePullBackOff)"),
        ({"untaken_since": NOW - 61}, "the kubelet of its node has not begun with it"),
        ({}, "its container does not run"),
        ({"running_since": NOW - 50, "phase": "Running"}, "its container runs and has not reported"),
    ],
)
def test_pod_that_does_not_come_is_named_in_the_reason(facts: dict[str, Any], why: str) -> None:
    late = pending("n1", created=NOW - 61, **facts)
    reason = decide(pool(minWorkers=2), observed(late, worker("w1")), ScalingMemory()).size.reason

    assert reason.endswith(f"; pod n1 has not come for 60 s and more: {why}")


def test_pod_that_stops_growth_is_not_named_again() -> None:
    late = pending("n1", created=NOW - 61, unprepared_since=NOW - 61)
    reason = decide(pool(minWorkers=3), observed(late, worker("w1")), ScalingMemory()).size.reason

    assert reason.startswith("growth stopped")
    assert "has not come" not in reason


def test_pod_that_has_just_been_asked_for_is_not_named_until_it_is_late() -> None:
    decision = decide(pool(minWorkers=2), observed(pending("n1"), worker("w1")), ScalingMemory())

    assert "n1" not in decision.size.reason
    assert decision.look_again_in is not None
    assert decision.look_again_in <= 55.0
