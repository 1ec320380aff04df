"""Pools for gated tasks: those last until the test lets them end, however long a busy machine makes that."""

from typing import Any

from tests.e2e.handler import GATE
from tests.e2e.pool import Pool
from tests.e2e.stage import Stage


def unhurried_pool(stage: Stage, namespace: str, name: str, **spec: Any) -> Pool:
    """Create an activity, a state machine and a pool for them, as `a_pool` does, with time limits that nobody meets."""
    # A machine too busy for a heartbeat in half a minute is another theme.
    machine = stage.machine(f"{name}-{namespace}", HeartbeatSeconds=300, TimeoutSeconds=1800)
    pool = Pool(stage, namespace, name, machine)
    pool.apply(**spec)
    return pool


def worker_of(pool: Pool, execution: str) -> str:
    """Return the name of the pod that took an execution's task first: where no operator polls, a worker's."""
    return pool.executions.attempts(execution)[0].worker.rpartition(":")[0]


def shut_gate(pool: Pool, worker: str) -> None:
    """Let this worker's gated tasks last again; none may be running there."""
    pool.kubectl("exec", worker, "-c", "worker", "--", "rm", GATE)
