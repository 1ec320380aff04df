"""A parent queue's work: make a job's children, once, and wait until all of them are done."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from activity_worker.errors import ActivityError
from activity_worker.flows.definition import FlowQueue
from activity_worker.flows.job import is_true
from activity_worker.flows.job_ids import uuid7
from activity_worker.runtime.cancellation import CancelReason
from activity_worker.runtime.toolkit import TaskResponseToolkit
from activity_worker.sources.redis_job import JobLock
from activity_worker.sources.redis_scripts import RETURN
from activity_worker.task import TaskRequest
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import Command, RedisClient

_log = logging.getLogger(__name__)

#: How often a parent looks at its children, in seconds.
CHECK_SECONDS = 1.0
_CHILD = "childName"


class ChildrenError(ActivityError):
    """A job's children cannot be made, or one of them is gone; the parent fails with it."""


ParentHandler = Callable[[TaskRequest, TaskResponseToolkit], Awaitable[None]]


def parent_handler(
    client: RedisClient,
    flow_queue: FlowQueue,
    keep_seconds: int = keys.KEEP_SECONDS,
    check_seconds: float = CHECK_SECONDS,
) -> ParentHandler:
    """Return the handler of a parent queue; it needs no attributes of the job, and a lock that is renewed."""

    async def wait_for_children(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        """Make the children unless they were made before, wait for them, and add nothing to the job."""
        job_id = request.input["id"]
        fields = (keys.children_params(flow_queue.name), keys.children_jobs(flow_queue.name))
        stored = await client.call("HMGET", keys.job(flow_queue.flow, job_id), *fields)
        params, children = (keys.decode(value) for value in stored)
        if not children:
            children = await make_children(client, flow_queue, job_id, params, keep_seconds)
        try:
            # Other processes work on the children, and nothing announces that they are done.
            while not await all_done(client, children):  # noqa: ASYNC110
                await asyncio.sleep(check_seconds)
        except asyncio.CancelledError:
            if respond.signal.reason is CancelReason.WORKER_STOPPED:
                await _give_back(client, flow_queue, JobLock.of(request.task.token))
            raise
        await respond.success({})

    return wait_for_children


async def make_children(
    client: RedisClient, flow_queue: FlowQueue, job_id: str, params: Any, keep_seconds: int
) -> list[str]:
    """Make the children that a job's params ask for, all or none, and write their keys into it; returns the keys."""
    made = [(uuid7(), *child) for child in _children(flow_queue, params)]
    commands: list[Command] = []
    for child_id, name, fields in made:
        key = keys.job(name, child_id)
        commands += [("HSET", key, *keys.pairs(fields)), ("EXPIRE", key, keep_seconds)]
        commands.append(("RPUSH", keys.waiting(name), child_id))
    found = [keys.job(name, child_id) for child_id, name, _ in made]
    field = keys.children_jobs(flow_queue.name)
    await client.transaction([*commands, ("HSET", keys.job(flow_queue.flow, job_id), field, keys.encode(found))])
    return found


async def all_done(client: RedisClient, children: Sequence[str]) -> bool:
    """Tell whether every child's `done` says so; raises `ChildrenError` when one is gone, which would never."""
    if not children:
        return True
    answers = await client.transaction([("HGET", key, keys.DONE) for key in children])
    open_ones = [key for key, done in zip(children, answers, strict=True) if not _says_yes(done)]
    if not open_ones:
        return True
    there = await client.pipeline([("EXISTS", key) for key in open_ones])
    if gone := [key for key, exists in zip(open_ones, there, strict=True) if not exists]:
        raise ChildrenError(f"{gone[0]}: a child that is gone: it was deleted, or is no longer kept")
    return False


async def _give_back(client: RedisClient, flow_queue: FlowQueue, lease: JobLock) -> None:
    """Let the job wait again if it is still ours: nothing is lost of a wait, another worker waits on."""
    touched = [
        keys.lock(flow_queue.name, lease.job_id),
        keys.waiting(flow_queue.name),
        keys.processing(flow_queue.name),
    ]
    if await RETURN.run(client, touched, lease.owner, lease.job_id):
        facts = {"flow": flow_queue.flow, "queue": flow_queue.name, "job": lease.job_id}
        _log.info("a parent's worker stops: the job waits again", extra={"facts": facts})


def _children(flow_queue: FlowQueue, params: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the full queue name and the fields of every child; raises `ChildrenError`.

    A place that names no children takes any name for one.
    """
    field = keys.children_params(flow_queue.name)
    if not isinstance(params, list):
        raise ChildrenError(f"{field}: expected a list of children's fields, each with a {_CHILD}")
    known = [child.name for child in flow_queue.queue.children]
    found = []
    for number, param in enumerate(params):
        where = f"{field}[{number}]"
        name = param.get(_CHILD) if isinstance(param, dict) else None
        if not isinstance(name, str) or not name or (known and name not in known):
            raise ChildrenError(f"{where}: expected a {_CHILD}{', one of ' if known else ''}{', '.join(known)}")
        fields = {key: value for key, value in param.items() if key != _CHILD}
        if not fields:
            raise ChildrenError(f"{where}: expected at least one field beside {_CHILD}")
        found.append((keys.child_name(flow_queue.name, name), fields))
    return found


def _says_yes(stored: str | None) -> bool:
    try:
        return is_true(keys.decode(stored))
    except ValueError:
        return False
