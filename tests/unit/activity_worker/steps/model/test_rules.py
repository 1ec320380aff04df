"""The rules of durable tasks, one test each."""

from typing import Any

import pytest

from activity_worker.steps.model.instance import Returned
from activity_worker.steps.model.rules import LOST_RETRIES, advance, begin, cancel, plan, retry_failed
from activity_worker.steps.model.storable import MAX_DEPTH
from tests.unit.activity_worker.steps.model.replay import LOST, START, Replay, fails

FOUR = {"steps": [{"method": "a", "reverse": "undo_a"}, "b", {"method": "c", "reverse": "undo_c"}, {"method": "d"}]}


def test_steps_run_in_order_and_the_task_succeeds() -> None:
    replay = Replay({"steps": ["a", "b", "c"]}).run()

    assert replay.called == ["a", "b", "c"]
    assert replay.ended == (True, True)
    assert replay.instance.next_run_time is None


def test_return_value_is_merged_deeply_into_the_data() -> None:
    task = {"data": {"order": {"id": 1, "lines": [1, 2]}}, "steps": ["a", "b"]}
    replay = Replay(task, {"a": [{"order": {"lines": [3], "paid": True}}], "b": ["not a map"]}).run()

    assert replay.instance.data == {"order": {"id": 1, "lines": [3], "paid": True}}
    assert replay.calls[1][1] == replay.instance.data


def test_arguments_of_a_new_instance_are_merged_over_the_default_data() -> None:
    replay = Replay(
        {"data": {"a": {"x": 1, "y": 1}}, "steps": ["m"]}, data={"a": {"y": 2}, "session": {"id": "s"}}
    ).run()

    assert replay.calls[0][1] == {"a": {"x": 1, "y": 2}, "session": {"id": "s"}}


def test_input_and_output_maps_select_by_path_and_keep_the_session() -> None:
    step = {"method": "m", "input": {"foo.bam": "baz.bam", "gone": "x"}, "output": {"bar": "foo", "list[1]": "second"}}
    data = {"foo": {"bam": 7}, "session": {"id": "s"}}
    replay = Replay({"steps": [step]}, {"m": [{"bar": 1, "list": [1, 2], "noise": 3}]}, data).run()

    assert replay.calls[0][1] == {"baz": {"bam": 7}, "session": {"id": "s"}}
    assert replay.instance.data == {"foo": 1, "second": 2, "session": {"id": "s"}}


def test_method_cannot_change_the_session() -> None:
    replay = Replay({"steps": ["a"]}, {"a": [{"session": {"id": "another"}, "x": 1}]}, {"session": {"id": "s"}}).run()

    assert replay.instance.data == {"session": {"id": "s"}, "x": 1}


def test_unhandled_error_reverses_completed_steps_and_fails_the_task() -> None:
    replay = Replay(FOUR, {"d": [fails("broken")]}).run()

    assert replay.called == ["a", "b", "c", "d", "undo_c", "undo_a"]
    assert replay.ended == (True, False)
    assert [(f.step_num, f.error.message) for f in replay.instance.status.failures] == [(3, "broken")]


def test_handled_error_reverses_completed_steps_and_the_task_succeeds() -> None:
    task = {"steps": [{"method": "a", "reverse": "undo_a"}, {"method": "b", "error": "tell"}, "never"]}
    replay = Replay(task, {"b": [fails("broken")]}, {"x": 1}).run()

    assert replay.called == ["a", "b", "tell", "undo_a"]
    assert replay.ended == (True, True)
    assert replay.calls[2][1] == {
        "x": 1, "error": {"code": "Trouble", "message": "broken", "data": None, "stack": ""},
    }  # fmt: skip


def test_failed_error_method_leaves_the_error_unhandled() -> None:
    task = {"steps": [{"method": "a", "reverse": "undo_a"}, {"method": "b", "error": "tell"}]}
    replay = Replay(task, {"b": [fails()], "tell": [fails()]}).run()

    assert replay.called == ["a", "b", "tell", "undo_a"]
    assert replay.ended == (True, False)


@pytest.mark.parametrize("tell", [None, fails()])
def test_ignored_error_continues_with_later_steps_without_reversing(tell: object) -> None:
    task = {"ignoreError": True, "steps": [{"method": "a", "reverse": "u"}, {"method": "b", "error": "tell"}, "c"]}
    replay = Replay(task, {"b": [fails()], "tell": [tell]}).run()

    assert replay.called == ["a", "b", "tell", "c"]
    assert replay.ended == (True, True)
    assert replay.instance.status.ignored == (1,)


def test_step_that_does_not_ignore_errors_overrides_the_task() -> None:
    replay = Replay(
        {"ignoreError": True, "steps": [{"method": "a", "ignoreError": False}, "b"]}, {"a": [fails()]}
    ).run()

    assert replay.called == ["a"]
    assert replay.ended == (True, False)


def test_step_with_an_ignored_error_is_not_reversed() -> None:
    task = {"steps": [{"method": "a", "ignoreError": True, "reverse": "u"}, "b"]}

    assert Replay(task, {"a": [fails()], "b": [fails()]}).run().called == ["a", "b"]


def test_retries_follow_the_schedule_and_end_with_one_error_method_call() -> None:
    task = {"steps": [{"method": "a", "retry": True, "error": "tell"}]}
    replay = Replay(task, {"a": [fails()]}).run()

    assert replay.called == ["a"] * 9 + ["tell"]
    waits = [after - before for before, after in zip(replay.times, replay.times[1:], strict=False)]
    assert waits == [5, 60, 300, 1800, 10_800, 43_200, 86_400, 86_400, 0]


def test_retry_with_its_own_schedule() -> None:
    step = {"method": "a", "retry": {"retries": 3, "delays": ["1s", 2.5]}}
    replay = Replay({"steps": [step]}, {"a": [fails()]}).run()

    assert replay.times == [0, 1, 3.5, 6]


def test_final_error_is_not_retried() -> None:
    assert Replay({"steps": [{"method": "a", "retry": True}]}, {"a": [fails(final=True)]}).run().called == ["a"]


def test_retry_of_a_task_applies_to_all_methods_without_their_own() -> None:
    task = {"retry": True, "steps": [{"method": "a", "retry": False}, "never"]}
    assert Replay(task, {"a": [fails()]}).run().called == ["a"]

    task = {"retry": True, "steps": [{"method": "a", "error": "tell"}]}
    assert Replay(task, {"a": [1], "tell": [1]}).run().called == ["a"]
    replay = Replay(task, {"a": [fails()], "tell": [fails(), 1]}).run()
    assert replay.called[-2:] == ["tell", "tell"]


def test_each_step_has_its_own_count_of_attempts() -> None:
    task = {"retry": {"retries": 2, "delays": [1]}, "steps": ["a", "b"]}
    replay = Replay(task, {"a": [fails(), fails(), 1], "b": [fails(), fails(), 1]}).run()

    assert replay.called == ["a"] * 3 + ["b"] * 3
    assert replay.ended == (True, True)


def test_check_runs_only_before_a_retry_and_a_value_means_done() -> None:
    task = {"steps": [{"method": "a", "retry": True, "check": "was_a"}, "b"]}
    replay = Replay(task, {"a": [fails()], "was_a": [False]}, {"x": 1}).run()

    assert replay.called == ["a", "was_a", "b"]
    assert replay.instance.data == {"x": 1}


def test_check_without_a_value_repeats_the_call() -> None:
    task = {"steps": [{"method": "a", "retry": True, "check": "was_a"}]}
    replay = Replay(task, {"a": [fails(), fails(), 1], "was_a": [None]}).run()

    assert replay.called == ["a", "was_a", "a", "was_a", "a"]
    assert replay.times == [0, 5, 5, 65, 65]


def test_failed_check_ends_the_retries_and_calls_the_error_method() -> None:
    task = {"steps": [{"method": "a", "retry": True, "check": {"method": "was_a", "retry": False}, "error": "tell"}]}
    replay = Replay(task, {"a": [fails("a")], "was_a": [fails("check")]}).run()

    assert replay.called == ["a", "was_a", "tell"]
    assert replay.calls[2][1]["error"]["message"] == "check"


def test_check_has_its_own_count_of_attempts() -> None:
    check = {"method": "was_a", "retry": {"retries": 2, "delays": [3]}}
    replay = Replay({"steps": [{"method": "a", "retry": True, "check": check}]}, {"a": [fails()], "was_a": [fails()]})

    assert replay.run().times == [0, 5, 8, 11]


def test_results_of_checks_errors_and_reverses_need_an_output_map() -> None:
    step = {
        "method": "a",
        "retry": True,
        "check": {"method": "was_a", "retry": True, "output": {"id": "found.id"}},
        "reverse": {"method": "undo", "output": {"at": "undone"}},
    }
    script: dict[str, list[Any]] = {
        "a": [fails()],
        "was_a": [{"id": 5, "x": 1}],
        "b": [fails()],
        "undo": [{"at": 9, "y": 2}],
    }
    replay = Replay({"steps": [step, {"method": "b", "error": "tell"}]}, {**script, "tell": [{"z": 3}]}).run()

    assert replay.instance.data == {"found": {"id": 5}, "undone": 9}


def test_check_and_error_method_inherit_input_maps() -> None:
    error = {"method": "tell", "retry": True, "check": "was_told", "input": {"b": "from_error"}}
    step = {"method": "a", "input": {"a": "from_method"}, "error": error, "reverse": "undo"}
    replay = Replay({"steps": [step]}, {"a": [fails()], "tell": [fails(), 1]}, {"a": 1, "b": 2}).run()

    given = [arguments for _, arguments in replay.calls]
    assert given[0] == {"from_method": 1}
    assert [{**one, "error": 0} for one in given[1:]] == [{"from_error": 2, "error": 0}] * 3
    assert replay.called == ["a", "tell", "was_told", "tell"]


def test_reverse_gets_the_arguments_of_its_step() -> None:
    task = {"steps": [{"method": "a", "input": {"x": "y"}, "reverse": "undo"}, "b"]}
    replay = Replay(task, {"b": [fails()]}, {"x": 1, "z": 2}).run()

    assert replay.calls[-1] == ("undo", {"y": 1})


def test_failed_reverse_lets_the_others_run_and_fails_the_task() -> None:
    task = {"steps": [*FOUR["steps"][:3], {"method": "d", "error": "tell"}]}
    replay = Replay(task, {"d": [fails()], "undo_c": [fails("stuck")]}).run()

    assert replay.called == ["a", "b", "c", "d", "tell", "undo_c", "undo_a"]
    assert replay.instance.status.success_orig is True
    assert replay.ended == (True, False)
    assert [f.error.message for f in replay.instance.status.failures] == ["no", "stuck"]


def test_reverse_with_retry_and_check() -> None:
    reverse = {"method": "undo", "retry": True, "check": "was_undone"}
    replay = Replay({"steps": [{"method": "a", "reverse": reverse}, "b"]}, {"b": [fails()], "undo": [fails()]})
    replay.script = {**replay.script, "was_undone": [None, True]}

    assert replay.run().called == ["a", "b", "undo", "was_undone", "undo", "was_undone"]


def test_call_lost_with_its_runner_is_checked_or_repeated() -> None:
    checked = {"steps": [{"method": "a", "retry": True, "check": "was_a"}]}
    assert Replay(checked, {"a": [LOST], "was_a": [True]}).run().called == ["a", "was_a"]
    assert Replay(checked, {"a": [LOST, 1], "was_a": [None]}).run().called == ["a", "was_a", "a"]

    plain = Replay({"steps": ["a", "b"]}, {"a": [LOST, 1]}).run()
    assert plain.called == ["a", "a", "b"]
    assert plain.ended == (True, True)


def test_call_that_is_always_lost_fails_after_its_retries() -> None:
    replay = Replay({"steps": ["a"]}, {"a": [LOST]}).run()

    assert len(replay.calls) == LOST_RETRIES + 1
    assert replay.instance.status.failures[0].error.code == "RunnerLost"


def test_call_is_running_until_its_lease_ends() -> None:
    replay = Replay({"steps": ["a"]})
    running = begin(replay.instance, START, 60.0)

    assert (running.status.running, running.next_run_time) == (True, START + 60)


def test_canceled_task_reverses_its_completed_steps() -> None:
    replay = Replay(FOUR)
    replay.step()
    replay.step()
    replay.instance = cancel(replay.definition, replay.instance, START, "by a person")

    assert replay.run().called == ["a", "b", "undo_a"]
    assert replay.ended == (True, False)
    assert replay.instance.status.failures[0].error.code == "Canceled"


def test_cancel_does_not_affect_a_running_call() -> None:
    replay = Replay(FOUR)
    running = begin(replay.instance, START, 60.0)

    assert cancel(replay.definition, running, START) == running


def test_retry_of_a_failed_task_repeats_reversed_and_failed_steps() -> None:
    replay = Replay(FOUR, {"d": [fails(), 1]}).run()
    replay.instance = retry_failed(replay.definition, replay.instance, START)
    replay.calls.clear()
    replay.script = {}

    assert replay.run().called == ["a", "c", "d"]  # b has no reverse, so it is still done
    assert replay.ended == (True, True)


def test_task_that_succeeded_is_not_retried() -> None:
    replay = Replay({"steps": ["a"]}).run()

    assert retry_failed(replay.definition, replay.instance, START) == replay.instance


def test_plan_and_advance_are_deterministic() -> None:
    replay = Replay(FOUR)
    assert plan(replay.definition, replay.instance) == plan(replay.definition, replay.instance)
    once = advance(replay.definition, begin(replay.instance, START, 60.0), Returned(), START)
    assert once == advance(replay.definition, begin(replay.instance, START, 60.0), Returned(), START)


def test_call_lost_at_its_last_attempt_is_still_checked() -> None:
    task = {"steps": [{"method": "a", "retry": {"retries": 1}, "check": "was_a", "error": "tell"}, "b"]}

    assert Replay(task, {"a": [LOST], "was_a": [None, True]}).run().called == [
        "a",
        "was_a",
        "a",
        "was_a",
        "b",
    ]
    gone = Replay(task, {"a": [LOST], "was_a": [None]}).run()
    assert gone.called == ["a", "was_a", "a", "was_a", "tell"]
    assert (gone.instance.status.failures[0].tries, gone.instance.status.failures[0].error.code) == (2, "RunnerLost")


def test_cancel_checks_an_uncertain_call_before_reversing_it() -> None:
    task = {"steps": [{"method": "a", "retry": True, "check": "was_a", "reverse": "undo_a"}, "b"]}
    for answer, calls in ((True, ["a", "was_a", "undo_a"]), (None, ["a", "was_a"])):
        replay = Replay(task, {"a": [fails()], "was_a": [answer]}, canceled_after=1).run()

        assert replay.called == calls
        assert replay.times == [0] * len(calls)
        assert replay.ended == (True, False)


def test_cancel_repeats_a_lost_call_without_a_check_to_reverse_it() -> None:
    replay = Replay({"steps": [{"method": "a", "reverse": "undo_a"}, "b"]}, {"a": [LOST, 1]}, canceled_after=1).run()
    assert replay.called == ["a", "a", "undo_a"]

    assert Replay({"steps": ["a", "b"]}, {"a": [LOST, 1]}, canceled_after=1).run().called == ["a"]


def test_failed_check_of_a_canceled_task_keeps_its_retry_schedule() -> None:
    check = {"method": "was_a", "retry": {"retries": 1, "delays": [3]}}
    task = {"steps": [{"method": "a", "retry": True, "check": check, "error": "tell"}, "b"]}
    replay = Replay(task, {"a": [fails()], "was_a": [fails()]}, canceled_after=1).run()

    assert (replay.called, replay.times) == (["a", "was_a", "was_a", "tell"], [0, 0, 3, 3])


LAST = {"method": "b", "retry": True, "check": "was_b", "reverse": "undo_b", "error": "tell"}
TWO = {"steps": [{"method": "a", "reverse": "undo_a"}, LAST]}


def test_cancel_before_the_last_steps_retry_reverses_all_steps() -> None:
    for first in (fails(), LOST):
        replay = Replay(TWO, {"b": [first], "was_b": [True]}, canceled_after=2).run()

        assert replay.called == ["a", "b", "was_b", "undo_b", "undo_a"]
        assert (replay.ended, replay.instance.status.canceled) == ((True, False), True)


def test_cancel_during_the_last_steps_call_reverses_all_steps() -> None:
    replay = Replay(TWO, canceled_in=2).run()
    assert replay.called == ["a", "b", "undo_b", "undo_a"]
    assert (replay.ended, replay.instance.status.canceled) == ((True, False), True)

    single = Replay({"steps": ["a"]}, canceled_in=1).run()
    assert (single.called, single.ended, single.instance.status.canceled) == (["a"], (True, False), True)
    assert single.instance.status.done == (0,)
    again = retry_failed(single.definition, single.instance, START)
    assert (again.complete, again.success, again.status.round) == (True, True, 1)


def test_cancel_during_an_error_method_that_handles_is_kept() -> None:
    for ignores, called in ((False, ["a", "b", "tell", "undo_a"]), (True, ["a", "b", "tell", "undo_a"])):
        task = {"steps": [TWO["steps"][0], {"method": "b", "error": "tell", "ignoreError": ignores}]}
        replay = Replay(task, {"b": [fails()]}, canceled_in=3).run()

        assert replay.called == called
        assert (replay.ended, replay.instance.status.canceled) == ((True, False), True)


def test_cancel_during_the_reverses_of_a_handled_error_is_kept() -> None:
    task = {"steps": [{"method": "a", "reverse": "undo_a"}, {"method": "b", "error": "tell"}]}
    for after, during in ((3, None), (None, 4)):
        replay = Replay(task, {"b": [fails()]}, canceled_after=after, canceled_in=during).run()

        assert replay.called == ["a", "b", "tell", "undo_a"]
        assert (replay.ended, replay.instance.status.canceled) == ((True, False), True)


@pytest.mark.parametrize("error", ["tell", None])
def test_canceled_instance_with_an_effect_in_doubt_has_failed(error: str | None) -> None:
    step = {"method": "a", "retry": True, "check": "was_a", "reverse": "undo_a"}
    task = {"steps": [{**step, "error": error} if error else step, "b"]}
    for script in ({"a": [fails()], "was_a": [fails()]}, {"a": [LOST], "was_a": [LOST]}):
        replay = Replay(task, script, canceled_after=1).run()

        assert [name for name in replay.called if name != "was_a"] == ["a", *([error] if error else [])]
        assert (replay.ended, replay.instance.status.canceled) == ((True, False), False)


def test_lost_call_that_nothing_settles_makes_a_canceled_instance_fail() -> None:
    replay = Replay({"steps": ["a", "b"]}, {"a": [LOST]}, canceled_after=1).run()

    assert (replay.called, replay.ended, replay.instance.status.canceled) == (["a"], (True, False), False)
    assert [one.error.code for one in replay.instance.status.failures] == ["RunnerLost", "Canceled"]


def test_lost_call_whose_check_says_not_made_is_canceled() -> None:
    step = {"method": "a", "retry": {"retries": 1}, "check": "was_a", "reverse": "undo_a"}
    replay = Replay({"steps": [step, "b"]}, {"a": [LOST], "was_a": [None]}, canceled_in=3).run()

    assert replay.called == ["a", "was_a", "a", "was_a"]
    assert replay.instance.status.canceled
    early = Replay({"steps": [{**step, "retry": True}, "b"]}, {"a": [LOST], "was_a": [None]}, canceled_after=1).run()
    assert (early.called, early.instance.status.canceled) == (["a", "was_a"], True)


def nested(levels: int) -> dict[str, Any]:
    """Return a map of `levels` levels."""
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"k": value}
    return value


def test_answer_that_makes_the_data_too_deep_fails_its_call() -> None:
    deep = nested(MAX_DEPTH - 10)
    step = {"method": "a", "output": {"k": ".".join("x" * 12)}, "reverse": "undo_a"}
    replay = Replay({"steps": [step, "b"]}, {"a": [deep]}).run()

    assert (replay.called, replay.ended) == (["a"], (True, False))
    (failure,) = replay.instance.status.failures
    assert failure.error.code == "ReturnNotJson"
    assert failure.error.message == "what a returned cannot be stored: with it the data has more than 500 levels"
    fits = {"steps": [{"method": "a", "output": {"k": ".".join("x" * 11)}}, "b"]}
    assert Replay(fits, {"a": [deep]}).run().ended == (True, True)


def test_status_of_a_failed_task_names_the_failed_step() -> None:
    status = Replay({"steps": ["a", "b", "c"]}, {"b": [fails()]}).run().instance.status

    assert (status.step_num, status.sub_step, status.reverse, status.success_orig) == (1, "method", False, False)


def test_every_call_gets_the_session_in_addition_to_its_input_map() -> None:
    pick = {"input": {"x": "picked"}, "retry": {"retries": 1, "delays": [1]}}
    step = {
        "method": "a",
        "check": {"method": "a?", **pick},
        "reverse": {"method": "a-", "check": "a-?", **pick},
        **pick,
    }
    failing = {"method": "b", "error": {"method": "e", "check": {"method": "e?", **pick}, **pick}, **pick}
    script: dict[str, list[Any]] = {
        "a": [fails(), 1],
        "a-": [fails()],
        "b": [fails()],
        "e": [fails()],
        "a-?": [1],
        "e?": [1],
    }
    replay = Replay({"steps": [step, failing]}, script, {"x": 1, "session": {"id": "s"}}).run()

    assert replay.called == ["a", "a?", "a", "b", "b", "e", "e?", "a-", "a-?"]
    assert all(given["session"] == {"id": "s"} for _, given in replay.calls)
    assert all(given["picked"] == 1 for _, given in replay.calls)


def test_check_of_a_reverse_inherits_the_input_map() -> None:
    reverse = {"method": "undo", "retry": True, "check": "undone"}
    for more, given in (({}, {"from_method": 1}), ({"input": {"y": "from_reverse"}}, {"from_reverse": 2})):
        step = {"method": "a", "input": {"x": "from_method"}, "reverse": {**reverse, **more}}
        replay = Replay(
            {"steps": [step, "b"]}, {"b": [fails()], "undo": [fails()], "undone": [1]}, {"x": 1, "y": 2}
        ).run()

        assert [arguments for _, arguments in replay.calls[-2:]] == [given, given]


def test_check_uses_its_own_input_map() -> None:
    check = {"method": "was_a", "input": {"y": "of_check"}}
    task = {"steps": [{"method": "a", "retry": True, "check": check, "input": {"x": "of_method"}}]}
    replay = Replay(task, {"a": [fails()], "was_a": [1]}, {"x": 1, "y": 2}).run()

    assert replay.calls == [("a", {"of_method": 1}), ("was_a", {"of_check": 2})]


def test_output_of_an_error_method_is_kept_for_the_reverses() -> None:
    failing = {"method": "b", "error": {"method": "tell", "output": {"ticket": "support.ticket"}}}
    task = {"steps": [{"method": "a", "reverse": "undo"}, failing]}
    replay = Replay(task, {"b": [fails()], "tell": [{"ticket": 7, "noise": 1}]}, {"support": {"by": "mail"}}).run()

    assert replay.instance.data == {"support": {"by": "mail", "ticket": 7}}
    assert replay.calls[-1] == ("undo", replay.instance.data)


def test_output_map_writes_into_lists_and_keeps_other_values() -> None:
    step = {"method": "a", "output": {"state": "lines[1].state", "gone": "lines[0]"}}
    replay = Replay({"steps": [step]}, {"a": [{"state": "sent"}]}, {"lines": [{"id": 1}, {"id": 2}]}).run()

    assert replay.instance.data == {"lines": [{"id": 1}, {"id": 2, "state": "sent"}]}


def test_step_that_ignores_errors_overrides_a_task_that_does_not() -> None:
    task = {"ignoreError": False, "steps": [{"method": "a", "ignoreError": True}, "b"]}

    assert Replay(task, {"a": [fails()]}).run().called == ["a", "b"]
