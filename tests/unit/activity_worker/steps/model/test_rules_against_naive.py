"""The reducer against a naive implementation of the same rules, on random tasks and outcomes."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from activity_worker.steps.model.instance import Instance, Outcome, Returned
from activity_worker.steps.model.rules import advance, begin, cancel, plan
from activity_worker.steps.store.rows import parse_status, status_record
from tests.unit.activity_operator.core.examples import examples
from tests.unit.activity_worker.steps.model.naive import play
from tests.unit.activity_worker.steps.model.replay import LOST, Replay, fails

RETRY = st.integers(1, 3).map(lambda most: {"retries": most, "delays": [1, 2]})
EVERY: list[Outcome] = [
    Returned(1), Returned(None), Returned({"x": 1}), Returned(False), fails(), fails(final=True), LOST,
]  # fmt: skip
OUTCOMES = st.sampled_from(EVERY)
Case = tuple[dict[str, Any], dict[str, list[Outcome]]]


@st.composite
def calls(draw: st.DrawFn, name: str, script: dict[str, list[Outcome]], *, check: bool = True) -> dict[str, Any]:
    """Draw a call with optional retry and check, and its outcomes; the last outcome is a success."""
    call: dict[str, Any] = {"method": name}
    script[name] = [*draw(st.lists(OUTCOMES, max_size=5)), Returned(1)]
    if draw(st.booleans()):
        call["retry"] = draw(RETRY)
        if check and draw(st.booleans()):
            call["check"] = draw(calls(f"{name}?", script, check=False))
    return call


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a task and the outcomes of its methods."""
    script: dict[str, list[Outcome]] = {}
    steps = []
    for number in range(draw(st.integers(1, 4))):
        step = draw(calls(f"m{number}", script))
        for field, letter in (("error", "e"), ("reverse", "r")):
            if draw(st.booleans()):
                step[field] = draw(calls(f"{letter}{number}", script))
        if (ignore := draw(st.sampled_from([None, None, True, False]))) is not None:
            step["ignoreError"] = ignore
        steps.append(step)
    return {"steps": steps, "ignoreError": draw(st.sampled_from([False, False, True]))}, script


@examples(100)
@given(cases())
@example(({"steps": [{"method": "m0", "retry": {"retries": 1, "delays": [1]}}]}, {"m0": [LOST, LOST, LOST]}))
def test_reducer_makes_the_same_calls_as_the_naive_implementation(case: Case) -> None:
    task, script = case
    replay = Replay(task, script).run()
    made: dict[str, int] = {}

    def outcome(name: str) -> Outcome:
        made[name] = made.get(name, 0) + 1
        return script[name][min(made[name], len(script[name])) - 1]

    expected = play(task, outcome)

    assert replay.called == expected.called
    assert replay.ended == (True, expected.success)
    status = replay.instance.status
    assert status.ignored == tuple(expected.ignored)
    assert status.done == tuple(number for number in expected.done if number not in expected.reversed)
    assert replay.times == sorted(replay.times)


def check_step_on_all_outcomes(replay: Replay, instance: Instance) -> None:
    """Check that every outcome of the next call leads to a state that can be saved and read."""
    now = instance.next_run_time
    assert now is not None
    running = begin(instance, now, 60.0)
    assert plan(replay.definition, running) == plan(replay.definition, instance)
    for one in (Returned(None), Returned([1]), Returned({"a": {"b": 2}}), fails(), fails(final=True), LOST):
        after = advance(replay.definition, running, one, now)
        kept = json.loads(json.dumps(status_record(after, replay.definition)))
        assert parse_status(kept) == after.status
        assert after.complete is (after.next_run_time is None)
        assert after.complete or after.next_run_time >= now  # type: ignore[operator]
        assert not after.status.running
        assert after.complete or plan(replay.definition, after).call.method


@examples(100)
@given(cases())
def test_every_reachable_state_handles_every_outcome(case: Case) -> None:
    replay = Replay(*case)
    while not replay.instance.complete:
        check_step_on_all_outcomes(replay, replay.instance)
        replay.step()
        assert len(replay.calls) < 200


@examples(100)
@given(cases(), st.integers(1, 12), st.booleans())
def test_canceled_task_completes_and_reverses_its_completed_steps(case: Case, number: int, during: bool) -> None:
    task, script = case
    replay = Replay(task, script, canceled_after=None if during else number, canceled_in=number if during else None)
    canceled = False
    while not replay.instance.complete:
        before = replay.instance
        replay.step()
        if canceled and not before.status.reverse:
            # After the cancel, only calls that settle an uncertain call are made.
            step, doubt = before.status.step_num, any(one.in_doubt for one in before.status.failures)
            settling = {f"m{step}", f"m{step}?"} | ({f"e{step}", f"e{step}?"} if doubt else set())
            assert replay.called[-1] in settling
        canceled = canceled or (len(replay.calls) >= number and (during or not replay.instance.complete))
        assert len(replay.calls) < 200
    status = replay.instance.status
    stuck = {one.step_num for one in status.failures if one.sub_step in {"reverse", "reverseCheck"}}
    left = {number for number in status.done if status.reverse and "reverse" in task["steps"][number]}
    assert left == stuck & left
    assert cancel(replay.definition, replay.instance, 0.0) == replay.instance
    assert not (canceled and replay.instance.success)
    if status.canceled:
        assert not left
        assert not any(one.in_doubt for one in status.failures)
