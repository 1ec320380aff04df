"""When the demo has succeeded, when it gives up, and what it says last."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from tests.demo import plan, verdict
from tests.demo.demo_state import DELETION_COST, DemoState, Raw
from tests.demo.screen import panel
from tests.demo.verdict import Outcome, failures, impatience, last_line, over

GOOD = Outcome(
    executions=40,
    succeeded=40,
    workers_before=0,
    most_workers=10,
    workers_left=0,
    first_replica_seconds=0.284,
    interrupted=0,
    lost=0,
)


def test_the_last_line_has_the_measured_values() -> None:
    assert last_line(GOOD) == (
        "demo: 40/40 executions succeeded, workers 0 -> 10 -> 0, first replica after 0.28 s, 0 tasks interrupted"
    )


def test_unknown_is_not_zero() -> None:
    assert last_line(replace(GOOD, interrupted=None)).endswith("first replica after 0.28 s, ? tasks interrupted")


def test_a_run_that_keeps_every_promise_has_no_failures() -> None:
    assert failures(GOOD) == []


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ({"executions": 39}, "the service knows 39 executions instead of 40"),
        ({"succeeded": 39}, "1 of 40 executions did not succeed"),
        ({"workers_before": 1}, "the pool had 1 workers before there was work"),
        ({"most_workers": 9}, "9 workers were ready at once instead of 10"),
        ({"workers_left": 1}, "the pool did not come back to zero: 1 workers are left"),
        ({"first_replica_seconds": None}, "no replica was written"),
        ({"interrupted": 1}, "1 tasks were interrupted: a worker began them and did not conclude them"),
        (
            {"interrupted": None},
            "whether tasks were interrupted is not known: the emulator does not tell the histories",
        ),
        ({"lost": 2}, "2 tasks were lost or failed, and handed out again or not"),
        ({"given_up": "too slow"}, "too slow"),
    ],
)
def test_each_broken_promise_is_a_failure(broken: dict[str, int | str | None], sentence: str) -> None:
    assert failures(replace(GOOD, **broken)) == [sentence]  # type: ignore[arg-type]


def deployment(replicas: int) -> Raw:
    return {"spec": {"replicas": replicas}}


def pod(*, ready: bool = True, leaving: bool = False, cordoned: bool = False) -> Raw:
    meta: dict[str, object] = {"annotations": {DELETION_COST: "-1000"}} if cordoned else {}
    ended = {"deletionTimestamp": "now"} if leaving else {}
    return {
        "metadata": meta | ended,
        "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


def pool(ready: str, message: str = "") -> Raw:
    condition = {"type": "Ready", "status": ready, "reason": "Because", "message": message}
    return {"status": {"conditions": [condition], "busyWorkers": 1}}


def begun() -> DemoState:
    """A pool that is Ready at zero, and all executions started at 100."""
    demo_state = DemoState()
    demo_state.saw_pool(pool("True"), 95.0)
    demo_state.saw_deployments([deployment(0)], 95.0)
    demo_state.start(0, 100.0)
    demo_state.start(plan.EXECUTIONS, 100.0)
    return demo_state


def ended() -> DemoState:
    """All executions ended at 150, the pool at zero again."""
    demo_state = begun()
    demo_state.saw_deployments([deployment(1)], 100.5)
    demo_state.saw_deployments([deployment(plan.MAX_WORKERS)], 101.0)
    demo_state.saw_pods([pod()] * plan.MAX_WORKERS)
    demo_state.count({"SUCCEEDED": plan.EXECUTIONS}, 150.0)
    demo_state.saw_pods([])
    demo_state.saw_deployments([deployment(0)], 198.0)
    return demo_state


def test_it_is_over_when_all_have_ended_and_the_pool_is_at_zero() -> None:
    assert over(ended())
    assert not over(begun())
    late = ended()
    late.saw_pods([pod(leaving=True)])
    assert not over(late)


def test_the_first_replica_and_the_most_workers_are_measured() -> None:
    demo_state = ended()

    assert (demo_state.began, demo_state.first_replica, demo_state.most_ready) == (100.0, 100.5, plan.MAX_WORKERS)
    demo_state = begun()
    demo_state.saw_pods([pod(), pod(ready=False), pod(leaving=True)])
    assert demo_state.most_ready == 1, "those that start or leave are no workers that are ready at once"


@pytest.mark.parametrize(
    ("what", "at", "words"),
    [
        (lambda demo_state: None, 341.0, "40 open"),
        (lambda demo_state: demo_state.saw_pool(pool("False", "no such image"), 110.0), 171.0, "no such image"),
        (lambda demo_state: demo_state.miss("refused", 110.0), 131.0, "refused"),
        (lambda demo_state: demo_state.count({"RUNNING": 0}, 110.0), 111.0, "no longer knows 40 of 40 executions"),
    ],
    ids=["executions that do not end", "a pool that is not ready", "a silent emulator", "one that forgot"],
)
def test_what_does_not_come_is_given_up_and_not_before_its_time(
    what: Callable[[DemoState], None], at: float, words: str
) -> None:
    demo_state = begun()
    assert impatience(demo_state, 109.0, opened=90.0) == ""
    what(demo_state)

    assert words in impatience(demo_state, at, opened=90.0)


def test_remaining_workers_and_an_unobserved_pool_end_the_wait() -> None:
    late = ended()
    assert impatience(late, 150.0 + verdict.ZERO_SECONDS, opened=90.0) == ""
    assert "left" in impatience(late, 151.0 + verdict.ZERO_SECONDS, opened=90.0)
    assert "has not looked" in impatience(DemoState(), verdict.READY_SECONDS + 1, opened=0.0)


def test_the_panel_shows_each_worker_and_keeps_its_height() -> None:
    busy = begun()
    busy.saw_deployments([deployment(5)], 101.0)
    busy.saw_pods([pod(), pod(), pod(ready=False), pod(cordoned=True)])
    drawn = [_drawn(begun()), _drawn(busy)]

    assert "◌ ● ○ ◍" in drawn[1]
    assert "1 starting, 1 busy, 1 idle, 1 draining; 5 of 0..10 replicas" in drawn[1]
    assert drawn[0].count("\n") == drawn[1].count("\n")


def _drawn(demo_state: DemoState) -> str:
    console = Console(width=100, force_terminal=False)
    with console.capture() as capture:
        console.print(panel(demo_state, 110.0))
    return capture.get()


def test_the_panel_has_the_counts_of_executions_and_workers() -> None:
    demo_state = DemoState()
    demo_state.start(40, 0.0)
    demo_state.count({"SUCCEEDED": 12, "RUNNING": 28}, 1.0)
    console = Console(width=100, force_terminal=True)
    with console.capture() as shown:
        console.print(panel(demo_state, 2.0))

    assert "28 open, 12 succeeded" in shown.get()
    assert "0 of 0..10 replicas" in shown.get()
