"""What terminal and log say."""

import re

import pytest
from rich.console import Console

from tests.demo import plan, telling
from tests.demo.facts import Pool
from tests.demo.lines import COUNTS_SECONDS, Printed, lines
from tests.demo.panel import panel
from tests.demo.scene import OperatorSays, PodNews, Replicas, Scene, Statuses
from tests.unit.demo.stories import begun, pod, task, there_and_back, told


def drawn(scene: Scene, now: float, width: int = 100) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(panel(scene, now))
    return capture.get()


def printed(scene: Scene, *moments: float) -> list[str]:
    found: list[str] = []
    so_far = Printed()
    for now in moments:
        new, so_far = lines(scene, now, so_far)
        found += new
    return found


def test_the_phase_says_what_is_waited_for_from_beginning_to_end() -> None:
    said = [telling.phase(Scene()), telling.phase(begun())]
    first = told([(101, Replicas({"d": 1})), (101, PodNews(pod("a")))], begun())
    proven = told([(103, PodNews(pod("a", ready=True)))], first)
    ended = told([(140, Statuses({"SUCCEEDED": plan.EXECUTIONS}))], proven)
    draining = told([(150, PodNews(pod("a", ready=True, cordoned=True)))], ended)
    leaving = told([(199, PodNews(pod("a", leaving=True))), (199, Replicas({"d": 0}))], ended)
    said += [telling.phase(scene) for scene in (first, proven, ended, draining, leaving, there_and_back())]

    words = ["is Ready", "itself polls", "keeps the task alive", "proven", "no work is left", "polls are awaited",
             "the last ones leave", "at zero again"]  # fmt: skip
    assert [word for word, sentence in zip(words, said, strict=True) if word not in sentence] == []
    assert [sentence for sentence in said if len(sentence) > 64] == []


def test_a_phase_is_not_taken_back_because_a_worker_is_unready_for_a_moment() -> None:
    proven = told([(101, Replicas({"d": 1})), (103, PodNews(pod("a", ready=True)))], begun())

    assert telling.phase(told([(104, PodNews(pod("a")))], proven)) == telling.phase(proven)


def test_the_curve_draws_the_way_up_and_down() -> None:
    scene = told([(101, Replicas({"d": 5})), (105, Replicas({"d": 10})), (109, Replicas({"d": 0}))], begun(100.0))

    assert telling.curve(scene, 112.0, 12) == "▄▄▄▄████____"
    assert telling.curve(Scene(), 1.0, 12) == ""


def test_the_panel_has_a_mark_for_each_worker_and_the_counts() -> None:
    workers = [PodNews(pod("a", ready=True)), PodNews(pod("b", ready=True)), PodNews(pod("c"))]
    scene = told([(101, Replicas({"d": 3})), *((102, news) for news in workers), (103, task("a", "1"))], begun())
    scene = told([(104, Statuses({"RUNNING": 30, "SUCCEEDED": 10})), (105, OperatorSays("1 -> 3 workers: x"))], scene)

    text = drawn(scene, 110.0)

    assert "◌ ● ○ - - - - - - -" in text
    assert "29 queued, 1 running, 10 succeeded" in text
    assert "1 starting, 1 busy, 1 idle" in text
    assert re.search(r"replicas +3 of 0\.\.10", text)
    assert "1 -> 3 workers: x  5 s ago" in text
    assert "8.0 s ago  3 workers start" in text


@pytest.mark.parametrize("succeeded", [0, 1, 13, 40])
def test_the_bar_of_executions_keeps_its_width(succeeded: int) -> None:
    scene = told([(104, Statuses({"RUNNING": 40 - succeeded, "SUCCEEDED": succeeded}))], begun())

    assert sum(drawn(scene, 110.0).count(cell) for cell in "█▓░") == 60


def test_the_panel_keeps_its_height_whatever_happens() -> None:
    assert drawn(begun(), 101.0, 80).count("\n") == drawn(there_and_back(), 200.0, 80).count("\n")


def test_a_pool_that_is_not_ready_says_why() -> None:
    bad = told([(101, Pool("False", "ImagePullFailed", "no such image"))], begun())

    assert "Ready (ScaledToZero): no work" in drawn(begun(), 101.0)
    assert "NOT READY (ImagePullFailed): no such image" in drawn(bad, 101.0)
    assert "has not looked" in drawn(Scene(), 1.0)


def test_the_log_tells_each_thing_once() -> None:
    scene = told([(101, Replicas({"d": 1})), (101, PodNews(pod("a")))], begun())

    found = printed(scene, 103.0, 104.0, 105.0)

    assert [line.split(" s  ", 1)[1] for line in found] == [
        "the first replica is written, 1.00 s after the first execution",
        "worker a starts",
        "executions: 40 queued, 0 running, 0 succeeded | workers: 1 starting | replicas: 1 of 0..10",
        "the operator keeps the task alive while a first worker starts",
    ]


def test_the_log_waits_for_others_of_the_same_second() -> None:
    scene = told([(101, PodNews(pod("a")))], begun())

    assert not any("starts" in line for line in printed(scene, 101.5))


def test_the_log_tells_counts_at_most_once_a_second() -> None:
    first, second = begun(), told([(101, Statuses({"RUNNING": 39, "SUCCEEDED": 1}))], begun())
    _, so_far = lines(first, 101.0, Printed())

    assert lines(second, 101.0 + COUNTS_SECONDS / 2, so_far)[0] == []
    assert "1 succeeded" in lines(second, 101.0 + COUNTS_SECONDS, so_far)[0][0]


def test_a_line_begins_with_the_time_since_the_first_execution() -> None:
    assert printed(begun(100.0), 112.34)[0].startswith("  +12.3 s  executions: ")
    assert printed(Scene(), 5.0)[0].startswith("      -    waiting")
