"""What a piece of news changes in the picture of the run."""

import pytest

from tests.demo import plan
from tests.demo.facts import Pod
from tests.demo.scene import OperatorSays, PodNews, Pods, Replicas, Scene, Started, State, Statuses
from tests.unit.demo.stories import begun, pod, task, there_and_back, told


@pytest.mark.parametrize(
    ("worker", "state"),
    [
        (pod("a", running=True), State.STARTING),
        (pod("a", ready=True), State.IDLE),
        (pod("a", ready=True, cordoned=True), State.DRAINING),
        (pod("a", ready=True, cordoned=True, leaving=True), State.LEAVING),
    ],
)
def test_a_workers_state_is_read_from_its_pod(worker: Pod, state: State) -> None:
    assert Scene().state(worker) is state


def test_a_worker_is_busy_from_the_line_that_starts_a_task_to_the_one_that_ends_it() -> None:
    scene = told([(101, PodNews(pod("a", ready=True))), (102, task("a", "1"))], begun())

    assert (scene.count(State.BUSY), scene.running, scene.queued) == (1, 1, plan.EXECUTIONS - 1)
    assert told([(104, task("a", "1", ended=True))], scene).count(State.IDLE) == 1


def test_the_tasks_of_a_worker_that_is_gone_or_began_anew_do_not_run() -> None:
    scene = told([(101, PodNews(pod("a", ready=True))), (102, task("a", "1"))], begun())

    assert told([(103, PodNews(pod("a"), gone=True))], scene).running == 0
    assert told([(103, PodNews(pod("a", restarts=1)))], scene).running == 0


def test_a_line_of_a_log_that_outlives_its_pod_changes_nothing() -> None:
    scene = begun()

    assert told([(103, task("gone", "1"))], scene) == scene


def test_no_more_tasks_run_than_executions_have_not_ended() -> None:
    """The list of executions may be newer than the workers' logs."""
    ended = Statuses({"SUCCEEDED": plan.EXECUTIONS})
    scene = told([(101, PodNews(pod("a", ready=True))), (102, task("a", "1")), (103, ended)], begun())

    assert (scene.running, scene.queued) == (0, 0)


def test_the_first_replica_counts_from_the_first_execution_and_only_once() -> None:
    scene = told([(100.7, Replicas({"d": 1})), (101, Replicas({"d": 9}))], begun(100.0))

    assert (scene.began, scene.first_replica) == (100.0, 100.7)
    assert [h.text for h in scene.story] == ["the first replica is written, 0.70 s after the first execution"]


def test_replicas_before_the_first_execution_are_not_its_answer() -> None:
    assert told([(1, Replicas({"d": 1})), (2, Started(0))]).first_replica is None


def test_replicas_of_all_revisions_are_one_number() -> None:
    scene = told([(101, Replicas({"old": 2, "new": 3}, all_of_them=True)), (102, Replicas({"new": 4}))], begun())

    assert scene.replicas == 6
    assert told([(103, Replicas({"new": 1}, all_of_them=True))], scene).replicas == 1


def test_the_most_workers_are_those_that_were_ready_at_once() -> None:
    scene = told(
        [(101, PodNews(pod("a", ready=True))), (102, PodNews(pod("a", ready=True, leaving=True))),
         (103, PodNews(pod("b", ready=True))), (104, PodNews(pod("c")))],
        begun(),
    )  # fmt: skip

    assert scene.most_ready == 1


def test_a_new_list_of_pods_replaces_what_was_known() -> None:
    """A watch that broke may have missed that a pod left."""
    scene = told([(101, PodNews(pod("a"))), (102, PodNews(pod("b"))), (103, Pods((pod("b"), pod("c"))))], begun())

    assert set(scene.pods) == {"b", "c"}
    assert scene.story[-1].text == "worker a has left"


def test_what_befalls_a_worker_is_told_once() -> None:
    stuck = pod("a", trouble="ImagePullBackOff")
    scene = told([(101, PodNews(pod("a"))), (103, PodNews(stuck)), (105, PodNews(stuck))], begun())

    assert [(h.text, h.bad) for h in scene.story] == [
        ("worker a starts", False),
        ("worker a is in trouble: ImagePullBackOff", True),
    ]


def test_the_life_of_a_worker_is_a_story() -> None:
    life = [pod("a"), pod("a", ready=True), pod("a", ready=True, cordoned=True), pod("a", cordoned=True, leaving=True)]
    news = [(101.0 + 2 * n, PodNews(step)) for n, step in enumerate(life)]
    scene = told([*news, (120.0, PodNews(life[-1], gone=True))], begun())

    assert [h.text for h in scene.story] == [
        "worker a starts",
        "worker a is ready",
        "worker a drains: it asks for no more tasks",
        "worker a has left",
    ]


def test_the_operators_last_sentence_is_kept_with_its_time() -> None:
    scene = told([(101, OperatorSays("0 -> 1 workers: 1 held")), (105, OperatorSays("slow", warning=True))], begun())

    assert (scene.said, scene.said_at) == ("slow", 105)
    assert [h.bad for h in scene.story] == [False, True]


def test_silence_counts_from_its_first_moment_until_an_answer() -> None:
    silent = told([(101, Statuses({}, "refused")), (105, Statuses({}, "refused"))], begun())

    assert (silent.problem, silent.problem_since) == ("refused", 101)
    assert told([(106, Statuses({"RUNNING": 40}))], silent).problem_since is None


def test_all_has_ended_when_every_execution_has_whatever_its_end() -> None:
    scene = told([(150, Statuses({"SUCCEEDED": 39, "FAILED": 1, "RUNNING": 0}))], begun())

    assert (scene.all_ended, scene.failed, scene.ended_at) == (True, 1, 150)


def test_zero_is_no_replica_and_no_pod() -> None:
    assert there_and_back().at_zero
    assert not told([(201, PodNews(pod("late")))], there_and_back()).at_zero
    assert not told([(201, Replicas({"d": 1}))], there_and_back()).at_zero
