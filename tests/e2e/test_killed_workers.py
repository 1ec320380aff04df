"""Workers and their processes are killed: at most the current attempt is lost, and the end is reported."""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

import pytest

from tests.e2e import deaths
from tests.e2e.faults import term
from tests.e2e.harness import ClusterHarness
from tests.e2e.pool import Pool
from tests.e2e.task_input import WITH_ATTEMPT
from tests.e2e.view import PoolView

pytestmark = pytest.mark.timeout(1800)

#: Seconds of a task that its worker finishes, and of one that ends only by a kill.
LONG, ENDLESS = 30, 800
#: HeartbeatSeconds of the tasks: longer than a machine stalls.
HEARTBEAT_SECONDS = 30

WELL = (0, "")
GONE = (None, "its pod went before it could end: deleted with too little grace, or with its node")


@dataclass(frozen=True)
class Death:
    """A way to end a worker.

    `error` and a part of its `cause` are those of the current attempt, "" if it succeeds. `reported` is the exit code
    and message of the worker's `worker:stopped` event, None when the worker lives on. `restarts` is the pod's number
    of restarts, None when the pod is gone.
    """

    comes: Callable[[Pool, str], None]
    error: str
    cause: str = ""
    reported: tuple[int | None, str] | None = None
    restarts: int | None = None


#: Those that let the worker finish its task come first, because the task must last until then.
DEATHS = (
    Death(deaths.delete, "", reported=WELL),
    Death(deaths.evict, "", reported=WELL),
    Death(deaths.kill_handler, "ActivityPool.HandlerExited", "killed by SIGKILL from outside", restarts=0),
    Death(deaths.kill_supervisor, "States.Timeout", reported=(137, "killed by SIGKILL"), restarts=1),
    Death(deaths.delete_at_once, "States.Timeout", reported=GONE),
)


def test_death_costs_at_most_one_attempt_and_is_reported(harness: ClusterHarness, namespace: str) -> None:
    since = term(harness)
    pool = _pool(harness, namespace, "pool", workers=len(DEATHS) + 1)
    at_work = _set_to_work(pool, [ENDLESS if death.error else LONG for death in DEATHS] + [LONG])
    *victims, neighbour = at_work
    for task, death in zip(victims, DEATHS, strict=True):
        death.comes(pool, at_work[task])
    expected = Counter(death.reported for death in DEATHS if death.reported is not None)
    _wait_reported(pool, expected, since)
    pool.wait_done()

    for task, death in zip(victims, DEATHS, strict=True):
        *failed, last = pool.executions.attempts(task)
        assert last.ending == "succeeded"
        assert [attempt.error for attempt in failed] == [error for error in [death.error] if error], death
        assert all(death.cause in attempt.cause for attempt in failed), failed
    restarts = {at_work[task]: death.restarts for task, death in zip(victims, DEATHS, strict=True)}
    pool.eventually(f"the victims' restarts are {restarts}", lambda view: _restarts(view, restarts) == restarts)
    assert _ends(pool.now) <= expected, "more ends are reported than there were"
    assert len(pool.executions.attempts(neighbour)) == 1, "a neighbour suffered"


def test_worker_past_its_drain_timeout_fails_its_task_by_name(harness: ClusterHarness, namespace: str) -> None:
    since = term(harness)
    hurried = _pool(harness, namespace, "hurried", workers=1, drain={"timeoutSeconds": 2})
    ((task, worker),) = _set_to_work(hurried, [ENDLESS]).items()
    deaths.delete(hurried, worker)
    _wait_reported(hurried, Counter([WELL]), since)
    hurried.wait_done()
    assert _ends(hurried.now) <= Counter([WELL])
    first, second = hurried.executions.attempts(task)
    assert (first.error, first.cause) == (
        "ActivityPool.WorkerStopped",
        "the worker stopped before the handler had finished",
    )
    assert second.ending == "succeeded"


def test_eviction_during_open_polls_loses_no_task(harness: ClusterHarness, namespace: str) -> None:
    pool = _pool(harness, namespace, "polling", workers=2)
    pool.wait_ready(2)
    for pod in pool.now.workers:
        deaths.evict(pool, pod)
    pool.executions.start(6, do="", seconds=1)
    pool.wait_done()
    pool.assert_nothing_lost()


def _pool(harness: ClusterHarness, namespace: str, name: str, workers: int, **spec: object) -> Pool:
    """Apply a pool with this number of workers, for which the operator does not poll."""
    machine = harness.machine(f"{name}-{namespace}", Parameters=WITH_ATTEMPT, HeartbeatSeconds=HEARTBEAT_SECONDS)
    pool = Pool(harness, namespace, name, machine)
    sizes = {"minWorkers": workers, "maxWorkers": workers, "activation": {"mode": "None"}}
    pool.apply(**sizes, taskHeartbeat={"intervalSeconds": 3}, **spec)
    return pool


def _set_to_work(pool: Pool, lengths_seconds: list[int]) -> dict[str, str]:
    """When enough workers are ready, start a task of each length; return the worker's pod by execution."""
    pool.wait_ready(len(lengths_seconds))
    tasks = [arn for seconds in lengths_seconds for arn in pool.executions.start(do="linger", seconds=seconds)]
    pool.wait_tasks("every task was handed out", lambda attempts: sum(bool(a.worker) for a in attempts) >= len(tasks))
    return {task: pool.worker_of(task) for task in tasks}


def _wait_reported(pool: Pool, expected: Counter[tuple[int | None, str]], since: int) -> None:
    """Wait until exactly the expected ends are reported.

    Fewer are reported after the term `since`: ends that only the former leader knew of are lost with it.
    """

    def reported(view: PoolView) -> bool:
        ends = _ends(view)
        return ends == expected or (ends <= expected and term(pool.harness) != since)

    pool.eventually("exactly the expected ends are reported", reported, since=0)


def _ends(view: PoolView) -> Counter[tuple[int | None, str]]:
    """Return how often the lifecycle events have each exit code and message of a stopped worker."""
    ends = [event for event in view.lifecycle if event["name"] == "worker:stopped"]
    found: Counter[tuple[int | None, str]] = Counter()
    for end in ends:
        found[end.get("exit", {}).get("code"), end["message"]] += end["count"]
    return found


def _restarts(view: PoolView, pods: Collection[str]) -> dict[str, int | None]:
    """Return the number of restarts of each of these pods' containers, None for a pod that is gone."""
    found = {
        pod["metadata"]["name"]: container["restartCount"]
        for pod in view.pods
        for container in pod["status"].get("containerStatuses") or []  # a replacement may have none yet
    }
    return {pod: found.get(pod) for pod in pods}
