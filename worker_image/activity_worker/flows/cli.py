"""`activity-worker flows …`: watch the locks of a flow's queues, and look after its jobs."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from activity_worker.config.logging import set_up_logs
from activity_worker.config.reader import UsageError
from activity_worker.contract import EXIT_ERROR, EXIT_USAGE, Env
from activity_worker.flows import show
from activity_worker.flows.definition import FlowDefinition, FlowError, Queue
from activity_worker.flows.flow import Flow
from activity_worker.flows.job import JobState
from activity_worker.flows.monitor import LockMonitor, MonitorOptions, find_unlocked
from activity_worker.wire.redis_connection import open_client
from activity_worker.wire.redis_errors import RedisError
from activity_worker.wire.redis_url import RedisUrlError


@dataclass(frozen=True, slots=True)
class _FlowCommand:
    """The flow that the arguments describe, and its queues with the flow of the jobs in each."""

    flow: Flow
    queues: tuple[tuple[str, str], ...]
    args: Mapping[str, Any]


def main(args: Mapping[str, Any]) -> int:
    """Run a command and return the exit code: 0, 1 (error), 2 (usage)."""
    if args["flows_command"] is None:
        args["flows_parser"].print_help(sys.stderr)
        return EXIT_USAGE
    try:
        asyncio.run(_run(args))
    except (UsageError, RedisUrlError) as error:
        return _say(error, EXIT_USAGE)
    except FlowError as error:
        return _say(error, EXIT_ERROR)
    except RedisError as error:
        return _say(f"the Redis server cannot be asked: {error}", EXIT_ERROR)
    return 0


def _say(error: object, code: int) -> int:
    print(f"activity-worker flows: {error}", file=sys.stderr)  # noqa: T201 - a command line's answer
    return code


async def _run(args: Mapping[str, Any]) -> None:
    url = args["redis_url"] or os.environ.get(Env.REDIS_URL)
    name = args["flow"] or os.environ.get(Env.REDIS_FLOW)
    queues = args["queue"] or [text for text in [os.environ.get(Env.REDIS_QUEUE)] if text]
    for value, flag, variable in (
        (url, "--redis-url", Env.REDIS_URL),
        (name, "--flow", Env.REDIS_FLOW),
        (queues, "--queue", Env.REDIS_QUEUE),
    ):
        if not value:
            raise UsageError(f"no value for {flag}: pass it or set {variable}")
    for child in args["child"]:
        parent, _, rest = child.partition(":")
        if not parent or not rest:
            raise UsageError(f"--child {child!r}: expected PARENT:CHILD, such as check:stock")
    assert url and name  # noqa: S101, PT018 - looked at just now
    try:
        definition = FlowDefinition(name, tuple(Queue(queue) for queue in queues))
    except FlowError as error:
        raise UsageError(error) from None
    pairs = (*((name, queue) for queue in queues), *((child, child) for child in args["child"]))
    async with Flow(definition, open_client(url)) as flow:
        command: Callable[[_FlowCommand], Awaitable[str]] = _COMMANDS[args["flows_command"]]
        if text := await command(_FlowCommand(flow, pairs, args)):
            print(text)  # noqa: T201 - what was asked for


async def _monitor(asked: _FlowCommand) -> str:
    args = asked.args
    try:
        options = MonitorOptions(args["look_seconds"], args["gap_seconds"], args["requeue"])
    except ValueError as error:
        raise UsageError(str(error).replace("monitor.", "--").replace("_", "-")) from None
    set_up_logs(args["log_format"])
    monitor = LockMonitor(asked.flow.client, asked.queues, options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, monitor.stop)
    await monitor.run()
    return ""


async def _ls(asked: _FlowCommand) -> str:
    client = asked.flow.client
    unlocked = [job.queue for job in await find_unlocked(client, asked.queues)]
    lengths = await asked.flow.lengths([queue for _, queue in asked.queues])
    return show.queues([(queue, *counts, unlocked.count(queue)) for queue, counts in lengths.items()])


async def _show(asked: _FlowCommand) -> str:
    job = await asked.flow.get(asked.args["id"], children=True)
    if job.state is JobState.MISSING:
        raise FlowError(f"job {job.id} of flow {job.flow}: there is none, or it is no longer kept")
    return show.job(job)


async def _retry(asked: _FlowCommand) -> str:
    queue = await asked.flow.retry(asked.args["id"], queue=asked.args["from_queue"])
    return f"{asked.args['id']} waits in {queue}"


_COMMANDS: dict[str, Callable[[_FlowCommand], Awaitable[str]]] = {
    "monitor": _monitor,
    "ls": _ls,
    "show": _show,
    "retry": _retry,
}
