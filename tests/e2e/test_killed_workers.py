"""Workers and their processes killed: it costs the attempt at hand at most, and the end is told."""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

import pytest

from tests.e2e import deaths
from tests.e2e.faults import term
from tests.e2e.misdeeds import TELLING_ATTEMPTS
from tests.e2e.pool import Pool
from tests.e2e.stage import Stage

pytestmark = pytest.mark.timeout(1800)

#: Seconds for a task that its worker finishes, and for one that only death can end.
LONG, ENDLESS = 45, 800
#: Seconds without a heartbeat after which a worker is missed: more than a machine stalls.
HEARTBEAT_SECONDS = 45

WELL = (0, "")
GONE = (None, "its pod went before it could end: deleted with too little grace, or with its node")


@dataclass(frozen=True)
class Death:
    """A way to die.

    `error` and a part of its `cause` are what it costs the attempt at hand, "" nothing. `told` are exit code and
    message of the worker's `worker:stopped`, None when it lives. `restarts` are the pod's, None when it goes.
    """

    comes: Callable[[Pool, str], None]
    error: str
    cause: str = ""
    told: tuple[int | None, str] | None = None
    restarts: int | None = None


#: Those that leave the task to its worker come first: it has to last until they have come.
DEATHS = (
    Death(deaths.delete, "", told=WELL),
    Death(deaths.evict, "", told=WELL),
    Death(deaths.kill_handler, "ActivityPool.HandlerExited", "killed by SIGKILL from outside", restarts=0),
    Death(deaths.kill_supervisor, "States.Timeout", told=(137, "killed by SIGKILL"), restarts=1),
    Death(deaths.delete_at_once, "States.Timeout", told=GONE),
)


def test_a_death_costs_one_attempt_at_most_and_is_told_with_code_and_error(stage: Stage, namespace: str) -> None:
    since = term(stage)
    crew = _pool(stage, namespace, "crew", workers=len(DEATHS) + 1)
    at_work = _set_to_work(crew, [ENDLESS if death.error else LONG for death in DEATHS] + [LONG])
    *victims, neighbour = at_work
    for task, death in zip(victims, DEATHS, strict=True):
        death.comes(crew, at_work[task])
    expected = Counter(death.told for death in DEATHS if death.told is not None)
    _wait_told(crew, expected, since)
    crew.wait_done()

    for task, death in zip(victims, DEATHS, strict=True):
        *failed, last = crew.executions.attempts(task)
        assert last.ending == "succeeded"
        assert [attempt.error for attempt in failed] == [error for error in [death.error] if error], death
        assert all(death.cause in attempt.cause for attempt in failed), failed
    restarts = {at_work[task]: death.restarts for task, death in zip(victims, DEATHS, strict=True)}
    crew.wait_for(f"the victims' restarts are {restarts}", lambda: _restarts(crew, restarts) == restarts)
    assert _ends(crew) <= expected, "more ends are told than there were"
    assert len(crew.executions.attempts(neighbour)) == 1, "a neighbour suffered"


def test_a_worker_that_is_out_of_time_fails_its_task_by_name_and_ends_well(stage: Stage, namespace: str) -> None:
    since = term(stage)
    hurried = _pool(stage, namespace, "hurried", workers=1, drain={"timeoutSeconds": 2})
    ((task, worker),) = _set_to_work(hurried, [ENDLESS]).items()
    deaths.delete(hurried, worker)
    _wait_told(hurried, Counter([WELL]), since)
    hurried.wait_done()
    assert _ends(hurried) <= Counter([WELL])
    first, second = hurried.executions.attempts(task)
    assert (first.error, first.cause) == (
        "ActivityPool.WorkerStopped",
        "the worker stopped before the handler had finished",
    )
    assert second.ending == "succeeded"


def test_a_node_that_is_drained_while_polls_are_open_loses_no_task(stage: Stage, namespace: str) -> None:
    pool = _pool(stage, namespace, "polling", workers=2)
    pool.wait_ready(2)
    for pod in pool.workers():
        deaths.evict(pool, pod)
    pool.executions.start(6, do="", seconds=1)
    pool.wait_done()
    pool.assert_nothing_lost()


def _pool(stage: Stage, namespace: str, name: str, workers: int, **spec: object) -> Pool:
    """Apply a pool of so many workers, who alone ask for tasks."""
    machine = stage.machine(f"{name}-{namespace}", Parameters=TELLING_ATTEMPTS, HeartbeatSeconds=HEARTBEAT_SECONDS)
    pool = Pool(stage, namespace, name, machine)
    sizes = {"minWorkers": workers, "maxWorkers": workers, "activation": {"mode": "None"}}
    pool.apply(**sizes, taskHeartbeat={"intervalSeconds": 3}, **spec)
    return pool


def _set_to_work(pool: Pool, lengths_seconds: list[int]) -> dict[str, str]:
    """Once a worker for each is ready, start a task of each length; returns the worker's pod by execution."""
    pool.wait_ready(len(lengths_seconds))
    tasks = [arn for seconds in lengths_seconds for arn in pool.executions.start(do="linger", seconds=seconds)]
    pool.wait_running(len(tasks))
    return {task: pool.worker_of(task) for task in tasks}


def _wait_told(pool: Pool, expected: Counter[tuple[int | None, str]], since: str) -> None:
    """Wait until each end is told, and no other.

    Less is told when it is no longer the term `since`: what only the former leader saw is gone with it.
    """

    def told() -> bool:
        ends = _ends(pool)
        return ends == expected or (ends <= expected and term(pool.stage) != since)

    pool.wait_for("each end is told, and no other", told)


def _ends(pool: Pool) -> Counter[tuple[int | None, str]]:
    """Return how often the pool's events tell of each way in which a worker stopped."""
    ends = [event for event in pool.status.get("events", []) if event["name"] == "worker:stopped"]
    return Counter({(end.get("exit", {}).get("code"), end["message"]): end["count"] for end in ends})


def _restarts(pool: Pool, pods: Collection[str]) -> dict[str, int | None]:
    """Return how often each of these pods' containers was restarted, None of a pod that is gone."""
    found = {
        pod["metadata"]["name"]: container["restartCount"]
        for pod in pool.stage.workers(pool.namespace, pool.name)
        for container in pod["status"].get("containerStatuses") or []  # a successor may have none yet
    }
    return {pod: found.get(pod) for pod in pods}
