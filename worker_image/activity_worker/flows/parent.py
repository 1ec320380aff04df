"""The handler of a parent queue, for the worker's image and for pools:

    activity-worker run activity_worker.flows.parent:wait_for_children --redis-renew-lock true

The environment says which queue, as it does for the worker: ACTIVITY_REDIS_URL, ACTIVITY_REDIS_FLOW and
ACTIVITY_REDIS_QUEUE.
"""

import os

from activity_worker.contract import Env
from activity_worker.flows.children import parent_handler
from activity_worker.flows.definition import FlowError, FlowQueue, Queue
from activity_worker.runtime.toolkit import TaskResponseToolkit
from activity_worker.task import TaskRequest
from activity_worker.wire.redis_connection import open_client


async def wait_for_children(request: TaskRequest, respond: TaskResponseToolkit) -> None:
    """Make the children that the job asks for, of whatever name, and wait until all are done."""
    url, flow, queue = (_required(name) for name in (Env.REDIS_URL, Env.REDIS_FLOW, Env.REDIS_QUEUE))
    client = open_client(url)
    try:
        await parent_handler(client, FlowQueue(flow, queue, Queue(queue)))(request, respond)
    finally:
        await client.close()


def _required(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise FlowError(f"{name}: not set: a parent queue's handler finds its queue there")
    return value
