"""What a run with faults is judged by finds what it is there for, and nothing else."""

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activity_worker.contract import lease_id
from activity_worker.testing import FakeTimeouts, SwfFake
from tests.faults.calls import WORKER
from tests.faults.end_state import RECORDED_SECONDS, Harm, harm
from tests.faults.leaks import found
from tests.faults.runs import Run, complaints
from tests.faults.swf_harness import misclosed

TOKEN = "t" * 40
LEASE = lease_id(TOKEN)


def task(state: str = "succeeded", conclusions: int = 1, token: str = TOKEN) -> Any:
    return SimpleNamespace(token=token, state=state, conclusions=conclusions, error="States.Timeout")


def harness(*tasks: Any, ends: Sequence[float] = (), freezes: Sequence[float] = (), **known: Any) -> Any:
    """Return what a harness has counted of one execution, by default nothing but that it ended well."""
    replica = SimpleNamespace(name="operator-a", ended=0, ends=list(ends), freezes=list(freezes))
    counted = {
        "ran": Counter(), "recorded": set(), "handed": {}, "executions": {"e1": "arn"}, "replicas": [replica],
        "interrupted": [], "troubles": [], "misclosed": list, "former_leader_writes": list, **known,
    }  # fmt: skip
    kubelet = SimpleNamespace(interrupted=counted.pop("interrupted"), troubles=counted.pop("troubles"))
    return SimpleNamespace(
        tasks=lambda: list(tasks or (task(),)), kubelet=kubelet, replica=lambda _: replica, **counted
    )


def judged(*tasks: Any, **known: Any) -> Harm:
    return harm(cast("Any", harness(*tasks, **known)))


TIMED_OUT = task("timed_out", 0)
AGAIN = task(token="u" * 40)


def test_a_run_in_which_everything_ended_well_did_no_harm() -> None:
    assert not judged(ran=Counter([LEASE]), handed={LEASE: (WORKER, 1.0)}, recorded={LEASE}).done


@pytest.mark.parametrize(
    "known",
    [
        {"recorded": {LEASE}},
        {"ran": Counter([LEASE])},
        {"handed": {LEASE: (WORKER, 100.0)}},
        {"handed": {LEASE: ("operator-a", 100.0)}},
        {"handed": {LEASE: ("operator-a", 100.0)}, "ends": [100.0 + RECORDED_SECONDS + 0.1]},
    ],
    ids=["recorded", "begun", "a worker's", "an operator's", "an operator's that lived long enough to record it"],
)
def test_a_task_in_safe_hands_that_timed_out_is_lost(known: dict[str, Any]) -> None:
    found = judged(TIMED_OUT, AGAIN, **known)

    assert (found.lost, found.retried) == (1, 0)
    assert found.done


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"handed": {LEASE: ("operator-a", 100.0)}, "ends": [101.0]},
        {"handed": {LEASE: ("operator-a", 100.0)}, "freezes": [100.1], "ends": [110.0]},
    ],
    ids=["swallowed", "handed to an operator that died at once", "handed to an operator that froze at once"],
)
def test_a_task_that_was_in_nobodys_hands_is_retried_and_not_lost(known: dict[str, Any]) -> None:
    found = judged(TIMED_OUT, AGAIN, **known)

    assert (found.lost, found.retried) == (0, 1)
    assert not found.done


def test_repeated_handlers_and_repeated_conclusions_are_duplicates() -> None:
    assert judged(ran=Counter([LEASE, LEASE])).duplicates == 1
    assert judged(task(), AGAIN).duplicates == 1


def test_a_busy_pod_that_went_is_an_interruption() -> None:
    found = judged(interrupted=["pod p was deleted with 1 tasks"])

    assert (found.interrupted, found.words) == (1, ("pod p was deleted with 1 tasks",))
    assert found.done


@pytest.mark.parametrize("harmful", [Harm(lost=1), Harm(interrupted=1), Harm(duplicates=1)])
def test_a_run_that_did_harm_is_not_good_whatever_its_end(harmful: Harm) -> None:
    ended: dict[str, Any] = {
        "scenario": "s",
        "faults": (),
        "state": {},
        "seconds": 1.0,
        "calls": (),
        "events": (),
        "struck": True,
    }

    assert not Run(harm=harmful, **ended).good
    assert not Run(harm=Harm(), wrong="differs", **ended).good
    assert Run(harm=Harm(retried=1), **ended).good


def test_ended_operator_silent_node_and_second_writer_are_reported() -> None:
    quiet = harness()
    assert complaints(quiet) == []

    loud = harness(
        troubles=["the node is deaf"],
        misclosed=lambda: ["closed twice"],
        former_leader_writes=lambda: ["patch pods p took effect while …"],
    )
    loud.replicas[0].ended = 1
    assert complaints(loud) == [
        "operator-a ended by itself",
        "the node is deaf",
        "closed twice",
        "patch pods p took effect while …",
    ]


async def test_activity_that_its_history_closes_twice_or_never_is_reported() -> None:
    async with SwfFake(domains=["shop"]) as fake:
        never, twice = fake.schedule("shop", "work", count=2, timeouts=FakeTimeouts(schedule_to_start_seconds=0.01))
        await fake.until(lambda: never.state == twice.state == "timed_out")
        assert misclosed(fake.tasks) == []

        twice.workflow.history.append(twice.workflow.history[-1])
        del never.workflow.history[-1]
        said = misclosed(fake.tasks)

    assert said == [
        f"the history closes {never.activity_id} by []",
        f"the history closes {twice.activity_id} by ['ActivityTaskTimedOut', 'ActivityTaskTimedOut']",
    ]


def test_a_secret_is_found_wherever_it_stands_and_is_not_repeated() -> None:
    secrets = {"abc": "a payload", "xyz": "the token of a task"}
    places = {"the log of operator-a": "nothing", "the pool": '{"message": "abc and xyz"}'}

    said = list(found(places, secrets))
    assert said == ["a payload stands in the pool", "the token of a task stands in the pool"]
    assert not any("abc" in words for words in said)
