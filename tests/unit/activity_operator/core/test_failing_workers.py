"""`status.workers`: the workers that cannot do their work, each with a state and a time that stay the same."""

from datetime import UTC, datetime
from typing import Any

import pytest

from activity_operator.api.status import MAX_WORKERS_NAMED, PoolStatus, WorkerRecord
from activity_operator.core.failing_workers import failing_workers
from activity_operator.core.observation import Observation
from activity_operator.core.situation import situation_of
from activity_worker.contract import PollFault, PollTrouble, WorkerState
from tests.unit.activity_operator.core.builders import NOW, busy, observed, pending, pod, pool, worker

DENIED = PollTrouble(PollFault.DENIED, "AccessDeniedException", "user x may not poll")


def records(observation: Observation, before: tuple[WorkerRecord, ...] = ()) -> tuple[WorkerRecord, ...]:
    """Return the records at the observation's time; `before` are those of the last status."""
    now = datetime.fromtimestamp(int(observation.now), UTC)
    return failing_workers(situation_of(pool(), observation), PoolStatus(workers=before), now)


@pytest.mark.parametrize(
    "facts",
    [
        (busy("a"), worker("b")),
        (pending("a"),),
        (pending("a", waiting_reason="ContainerCreating"),),
        (worker("a", state=WorkerState.DRAINING),),
        (worker("a", state=WorkerState.DRAINED),),
        (pod("a", ready_since=NOW - 5.0),),
    ],
)
def test_workers_that_are_well_or_still_start_are_not_named(facts: tuple[Any, ...]) -> None:
    assert records(observed(*facts)) == ()


@pytest.mark.parametrize(
    ("fact", "state", "reason"),
    [
        (pending("a", unschedulable="0/3 nodes are available"), "Unschedulable", "the scheduler finds no node"),
        (pending("a", waiting_reason="ImagePullBackOff"), "Waiting", "ImagePullBackOff"),
        (
            pending("a", waiting_reason="CrashLoopBackOff", last_exit_reason="OOMKilled", last_exit_code=137),
            "Waiting",
            "CrashLoopBackOff, OOMKilled exit code 137",
        ),
        (worker("a", failed_start="HandlerImportError"), "FailedStart", "HandlerImportError"),
        (pod("a"), "Mute", "does not report"),
        (busy("a", reported_at=NOW - 500.0), "Silent", "its reports have stopped"),
        (worker("a", poll_trouble=DENIED), "CannotPoll", "denied: AccessDeniedException"),
    ],
)
def test_worker_that_cannot_work_is_named_with_its_state(fact: Any, state: str, reason: str) -> None:
    (record,) = records(observed(fact, busy("z")))

    assert (record.worker, record.revision, record.state) == ("a", "r1", state)
    assert reason in record.reason


def test_message_of_a_service_stays_out_of_the_record() -> None:
    (record,) = records(observed(worker("a", poll_trouble=DENIED)))

    assert "user x" not in record.model_dump_json()


def test_worker_keeps_its_time_while_its_state_is_the_same() -> None:
    first = records(observed(worker("a", poll_trouble=DENIED)))
    later = records(observed(worker("a", poll_trouble=DENIED, reported_at=NOW + 60.0), now=NOW + 60.0), first)

    assert later == first


def test_new_state_of_a_worker_has_a_new_time() -> None:
    first = records(observed(worker("a", poll_trouble=DENIED)))
    (silent,) = records(observed(worker("a", poll_trouble=DENIED), now=NOW + 500.0), first)

    assert (silent.state, silent.since.timestamp()) == ("Silent", NOW + 500.0)


def test_workers_that_fell_silent_together_are_not_named() -> None:
    """The condition SignalsStale is about all of them."""
    silent = busy("a", reported_at=NOW - 500.0)

    assert records(observed(silent, excused_workers={"a": "most workers are silent"})) == ()


def test_at_most_twenty_workers_are_named_and_always_the_same() -> None:
    many = [pending(f"n{number:02}", waiting_reason="ErrImagePull") for number in range(50)]
    first = records(observed(*many))

    assert [record.worker for record in first] == [f"n{number:02}" for number in range(MAX_WORKERS_NAMED)]
    assert records(observed(*reversed(many), now=NOW + 10.0), first) == first
