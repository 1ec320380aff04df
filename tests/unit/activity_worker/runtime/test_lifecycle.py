"""The two tables, over every pair."""

import itertools

import pytest

from activity_worker.contract import WorkerState
from activity_worker.lifecycle import LifecycleError, WorkerStatus, may_step, step

STATUS = {"ready>starting", "starting>running", "starting>stopping", "running>stopping", "stopping>stopped"}
STATUS |= {"stopped>starting"}
STATE = {"starting>running", "starting>draining", "running>draining", "draining>running", "draining>drained"}
STATE |= {f"{state}>stopping" for state in ("starting", "running", "draining", "drained")} | {"stopping>stopped"}


@pytest.mark.parametrize(("current", "to"), list(itertools.product(WorkerStatus, repeat=2)))
def test_a_slots_status_takes_the_steps_of_its_table_and_no_others(current: WorkerStatus, to: WorkerStatus) -> None:
    assert may_step(current, to) == (f"{current}>{to}" in STATUS)


@pytest.mark.parametrize(("current", "to"), list(itertools.product(WorkerState, repeat=2)))
def test_a_pods_state_takes_the_steps_of_its_table_and_no_others(current: WorkerState, to: WorkerState) -> None:
    assert may_step(current, to) == (f"{current}>{to}" in STATE)


def test_a_step_that_is_not_in_the_table_is_refused_by_name() -> None:
    assert step(WorkerStatus.READY, WorkerStatus.STARTING) is WorkerStatus.STARTING
    with pytest.raises(LifecycleError, match="drained cannot become running"):
        step(WorkerState.DRAINED, WorkerState.RUNNING)
