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
from activity_operator.leases.rules import LeasePolicy, is_kept_alive
from activity_operator.leases.store import RETRY_CAP_SECONDS, RETRY_FIRST_SECONDS
from activity_operator.leases.table import LeaseTable

#: Most seconds between two task heartbeats of an unclaimed lease, also if the pool's own interval is longer. After a
#: leader is killed, heartbeats pause for up to 19 s: the Lease expires (17 s at most), and the next leader reads the
#: records. Both together stay below the 30 s of HeartbeatSeconds that docs/limits.md asks for.
WAITING_HEARTBEAT_SECONDS = 5.0
#: Most task heartbeats a second. Step Functions refills the allowance of SendTaskHeartbeat, which the workers use as
#: well, with 300 to 500 calls a second, by region. At the largest `heldLeases` (1,000) a heartbeat is due every 5 s.
HEARTBEATS_PER_SECOND = 200.0

log = logging.getLogger(__name__)


class TaskHeartbeats:
    """Sends the heartbeats, in one task for each lease. `now` returns Unix seconds.

    They are at least 1 / HEARTBEATS_PER_SECOND apart, also after a change of leader. `on_over` is called when the
    service answers that a lease's task is over.
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
        self._next_turn = 0.0

    def start(self, lease: str, *, at_once: bool) -> None:
        """Keep the lease's task alive from now on; the first heartbeat is sent at once or after one interval."""
        self._tasks[lease] = asyncio.get_running_loop().create_task(self._keep_alive(lease, at_once))

    def stop(self, lease: str) -> None:
        """Send no more heartbeats for this lease."""
        task = self._tasks.pop(lease, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def stop_all(self) -> None:
        """Send no more heartbeats."""
        await cancel(set(self._tasks.values()))

    async def _keep_alive(self, lease: str, at_once: bool) -> None:
        """Send task heartbeats until the owner sends them, the task is over, or the service refuses the token."""
        wait, failures = 0.0 if at_once else self._interval(lease), 0
        while True:
            await asyncio.sleep(wait)
            await asyncio.sleep(self._until_turn())
            entry = self._table.get(lease)
            if entry is None or not is_kept_alive(entry, self._now()):
                return
            wait = self._interval(lease)
            try:
                await self._service.heartbeat(entry.lease.target, entry.lease.token)
                failures = 0
            except TaskOverError as error:
                self._on_over(entry.lease, error)
                return
            except TokenRefusedError:
                if (entry := self._table.get(lease)) is not None:
                    self._table.put(replace(entry, heartbeat_accepted=False))
                return
            except SourceProblemError as error:
                failures += 1
                log.warning("lease %s: no task heartbeat: %s", lease, error.reason)
                wait = min(wait, capped(failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS))
            except Exception as error:  # noqa: BLE001 - one odd answer must not end the task; the text may name data
                failures += 1
                log.warning("lease %s: no task heartbeat: %s", lease, type(error).__name__)
                wait = min(wait, capped(failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS))

    def _interval(self, lease: str) -> float:
        entry = self._table.get(lease)
        pool = LeasePolicy() if entry is None else self._table.policy(entry.lease.pool.key)
        return min(pool.heartbeat_seconds, WAITING_HEARTBEAT_SECONDS)

    def _until_turn(self) -> float:
        """Take the next free turn; return the seconds until then."""
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next_turn)
        self._next_turn = turn + 1.0 / HEARTBEATS_PER_SECOND
        return turn - now
