"""Instances in a handler's own process: the supervisor has taken them and keeps their leases, the calls are made here.

So that whatever a method does, hold the interpreter for minutes or take the process with it, costs no lease.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from activity_worker.errors import LeaseLostError, TaskFailed
from activity_worker.steps.model.child_protocol import Capabilities, InstanceClaim, capabilities_of
from activity_worker.steps.model.instance import Instance, Outcome
from activity_worker.steps.runner.invoke import wait_for_threads
from activity_worker.steps.runner.observer import RunObserver, summarize_call
from activity_worker.steps.runner.runner import Runner, RunnerOptions
from activity_worker.steps.runner.tasks import Tasks
from activity_worker.steps.store import lease_operations
from activity_worker.steps.store.db_errors import translated
from activity_worker.steps.store.rows import StoredInstance
from activity_worker.steps.store.task_store import TaskStore
from activity_worker.task import TaskRequest

#: `send_call(note)`: pass the note of a call on, as plain data.
SendCall = Callable[[Mapping[str, Any]], None]


class InstanceHandler:
    """Runs claimed instances of `tasks`, one at a time, on the store at `url`; `send_call` hears of every call."""

    def __init__(self, tasks: Tasks, url: str, send_call: SendCall) -> None:
        self._tasks = tasks
        self._url = url
        self._observer = _CallForwarder(send_call)
        self._store: TaskStore | None = None
        self._runner: Runner | None = None
        self._stopping = False

    @property
    def capabilities(self) -> Capabilities:
        """What can be run here."""
        return capabilities_of(self._tasks.methods)

    def begin(self, *, stopping: bool) -> None:
        """Get ready for the next instance, which with `stopping` is left to others."""
        self._stopping = stopping

    def stop(self) -> None:
        """Begin no further call of the instance under way."""
        self._stopping = True
        if self._runner is not None:
            self._runner.stop()

    async def handle(self, request: TaskRequest) -> None:
        """Run an instance as far as it goes.

        Raises `TaskFailed` under its error's code when it failed, `LeaseLostError` when another runner has it, other
        `SourceError`s when the store does not answer. The outcome is unknown then, and the call's check finds it out.
        """
        claim = InstanceClaim.from_input(request.input)
        with translated():
            try:
                ended = await self._run(claim)
            except asyncio.CancelledError:
                # A function that was given up goes on in its thread. The supervisor waits for this process, then kills
                # it, so that no call is under way when another runner takes the instance.
                await wait_for_threads()
                raise
            finally:
                self._runner = None
        _judge(ended.instance)

    async def close(self) -> None:
        """Give the store's connections back."""
        if self._store is not None:
            await self._store.close()
            self._store = None

    async def _run(self, claim: InstanceClaim) -> StoredInstance:
        if self._store is None:
            # The supervisor has brought the tables up to date, or could not have taken anything.
            self._store = await TaskStore.open(self._url, migrate=False)
        held = await self._store.get(claim.instance_id)
        if (held.runner, held.revision) != (claim.runner, claim.revision):
            raise LeaseLostError("LeaseLost", f"instance {claim.instance_id} has been taken by {held.runner!r}")
        options = RunnerOptions(claim.runner, lease_seconds=claim.lease_seconds, renews=False)
        self._runner = self._tasks.runner(self._store, options, self._observer)
        ended = await (self._runner.leave(held) if self._stopping else self._runner.go_on(held))
        due = ended.instance.next_run_time
        if due is not None and due <= self._tasks.now() and not ended.instance.paused:
            await lease_operations.announce(self._store, ended.instance.task_name)
        return ended


class _CallForwarder(RunObserver):
    """Passes on what calls came to."""

    def __init__(self, send_call: SendCall) -> None:
        self._send_call = send_call

    def called(self, before: Instance, outcome: Outcome, after: Instance, seconds: float) -> None:
        """Tell of a call."""
        self._send_call(summarize_call(before, outcome, after, seconds).to_wire())


def _judge(instance: Instance) -> None:
    if instance.complete and not instance.success:
        first = instance.status.failures[0]
        raise TaskFailed(first.error.code, f"step {first.step_num} of instance {instance.id}")
