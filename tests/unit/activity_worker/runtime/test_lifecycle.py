"""The transition tables of slots and of pods, over every pair of states."""

import itertools

import pytest

from activity_worker.contract import WorkerState
from activity_worker.runtime.lifecycle import LifecycleError, SlotStatus, may_step, step

STATUS = {"ready>starting", "starting>running", "starting>stopping", "running>stopping", "stopping>stopped"}
STATUS |= {"stopped>starting"}
STATE = {"starting>running", "starting>draining", "running>draining", "draining>running", "draining>drained"}
STATE |= {f"{state}>stopping" for state in ("starting", "running", "draining", "drained")} | {"stopping>stopped"}


@pytest.mark.parametrize(("current", "to"), list(itertools.product(SlotStatus, repeat=2)))
def test_slot_status_allows_exactly_the_transitions_of_its_table(current: SlotStatus, to: SlotStatus) -> None:
    assert may_step(current, to) == (f"{current}>{to}" in STATUS)


@pytest.mark.parametrize(("current", "to"), list(itertools.product(WorkerState, repeat=2)))
def test_pod_state_allows_exactly_the_transitions_of_its_table(current: WorkerState, to: WorkerState) -> None:
    assert may_step(current, to) == (f"{current}>{to}" in STATE)


def test_error_of_a_forbidden_transition_names_both_states() -> None:
    assert step(SlotStatus.READY, SlotStatus.STARTING) is SlotStatus.STARTING
    with pytest.raises(LifecycleError, match="drained cannot become running"):
        step(WorkerState.DRAINED, WorkerState.RUNNING)
