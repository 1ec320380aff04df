"""The table of states: every state with every event."""

import itertools

import pytest

from activity_worker.taskbroker.lifecycle.states import ActivationEvent, ActivationState, next_state

#: One line for each state, one column for each event, in the order of `COLUMNS`; "-" is an event that changes nothing.
TABLE = """
             given       claimed  delivered   released  claim-exp  completed  failed   retry   deadline  exhausted  expired  delay    appended  handled
pending      processing  claimed  -           -         -          complete   failure  retry   -         -          failure  -        -         -
claimed      -           -        processing  pending   pending    complete   failure  retry   -         failure    -        -        -         -
delay        -           -        -           -         -          -          -        -       -         -          failure  pending  -         -
processing   -           -        -           -         -          complete   failure  retry   pending   failure    -        -        -         -
failure      -           -        -           -         -          -          -        -       -         -          -        -        -         complete
retry        -           -        -           -         -          -          -        -       -         -          -        -        complete  -
complete     -           -        -           -         -          -          -        -       -         -          -        -        -         -
"""  # noqa: E501 - a table
COLUMNS = (
    ActivationEvent.GIVEN_OUT,
    ActivationEvent.CLAIMED,
    ActivationEvent.DELIVERED,
    ActivationEvent.CLAIM_RELEASED,
    ActivationEvent.CLAIM_EXPIRED,
    ActivationEvent.COMPLETED,
    ActivationEvent.FAILED,
    ActivationEvent.RETRY_REQUESTED,
    ActivationEvent.DEADLINE_PASSED,
    ActivationEvent.ATTEMPTS_EXHAUSTED,
    ActivationEvent.EXPIRED,
    ActivationEvent.DELAY_ELAPSED,
    ActivationEvent.RETRY_APPENDED,
    ActivationEvent.FAILURE_HANDLED,
)
EXPECTED = {line.split()[0]: line.split()[1:] for line in TABLE.strip().splitlines()[1:]}


def test_table_has_every_state_and_every_event_once() -> None:
    assert list(EXPECTED) == list(ActivationState)
    assert set(COLUMNS) == set(ActivationEvent)
    assert {len(row) for row in EXPECTED.values()} == {len(COLUMNS)} == {len(ActivationEvent)}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(ActivationState, ActivationEvent)))
def test_each_state_with_each_event(state: ActivationState, event: ActivationEvent) -> None:
    expected = EXPECTED[state][COLUMNS.index(event)]
    assert (next_state(state, event) or "-") == expected


def test_every_state_leads_to_complete() -> None:
    for state in ActivationState:
        reached = {state}
        for _ in ActivationState:
            reached |= {after for one in reached for event in ActivationEvent if (after := next_state(one, event))}
        assert ActivationState.COMPLETE in reached
