"""Task heartbeats of the leases that no worker keeps alive yet.

They go to the task service and do not need the API server, so a lease that is not recorded yet gets them as well.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from activity_operator.backlog.protocol import SourceProblemError, TaskOverError, TaskService, TokenRefusedError
from activity_operator.backoff import capped
from activity_operator.leases.background import cancel
from activity_operator.leases.model import TaskLease
from activity_operator.leases.rules import is_kept_alive
from activity_operator.leases.store import RETRY_CAP_SECONDS, RETRY_FIRST_SECONDS
from activity_operator.leases.table import LeaseTable

#: Most seconds between two task heartbeats of an unclaimed lease, also if the pool's own interval is longer. After a
#: leader is killed, heartbeats pause for up to 19 s: the Lease expires (17 s at most), and the next leader reads the
#: records. Both together stay below the 30 s of HeartbeatSeconds that docs/limits.md asks for.
WAITING_HEARTBEAT_SECONDS = 5.0

log = logging.getLogger(__name__)


class TaskHeartbeats:
    """Sends the heartbeats, in one task for each lease. `now` returns Unix seconds.

    `on_over` is called when the service answers that a lease's task is over.
    """

    def __init__(
        self,
        table: LeaseTable,
        service: TaskService,
        now: Callable[[], float],
        on_over: Callable[[TaskLease, TaskOverError], None],
    ) -> None:
        self._table = table
        self._service = service
        self._now = now
        self._on_over = on_over
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, lease: TaskLease, *, at_once: bool) -> None:
        """Keep the lease's task alive from now on; the first heartbeat is sent at once or after one interval."""
        self._tasks[lease.id] = asyncio.get_running_loop().create_task(self._keep_alive(lease, at_once))

    def stop(self, lease: str) -> None:
        """Send no more heartbeats for this lease."""
        task = self._tasks.pop(lease, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def stop_all(self) -> None:
        """Send no more heartbeats."""
        await cancel(set(self._tasks.values()))

    async def _keep_alive(self, lease: TaskLease, at_once: bool) -> None:
        """Send task heartbeats until the owner sends them, the task is over, or the service refuses the token."""
        wait, failures = 0.0 if at_once else self._interval(lease), 0
        while True:
            await asyncio.sleep(wait)
            if not is_kept_alive(self._table.get(lease.id), self._now()):
                return
            wait = self._interval(lease)
            try:
                await self._service.heartbeat(lease.target, lease.token)
                failures = 0
            except TaskOverError as error:
                self._on_over(lease, error)
                return
            except TokenRefusedError:
                entry = self._table.get(lease.id)
                if entry is not None:
                    self._table.put(replace(entry, heartbeat_accepted=False))
                return
            except SourceProblemError as error:
                failures += 1
                log.warning("lease %s: no task heartbeat: %s", lease.id, error.reason)
                wait = min(wait, capped(failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS))

    def _interval(self, lease: TaskLease) -> float:
        return min(self._table.policy(lease.pool.key).heartbeat_seconds, WAITING_HEARTBEAT_SECONDS)
