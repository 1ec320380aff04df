"""A flow of Redis queues in one file: it prepares an order, looks up its items at the same time, and sends it.

    python shop.py redis://127.0.0.1:6379

In a cluster a pool works on each queue, with the same handlers; a program creates the orders, as `main` does.
"""

import asyncio
import sys
from typing import Any

from activity_worker.flows import Flow, FlowDefinition, FlowWorkers, Job, Queue

SHOP = FlowDefinition(
    "shop",
    (
        Queue("prepare", attributes=("items",), next_queue="check"),
        Queue("check", children=(Queue("stock", attributes=("item",)),), next_queue="send"),
        Queue("send", attributes=("customer", "children:check:jobs")),
    ),
    lookup=("customer",),
)


def prepare(job: dict[str, Any]) -> dict[str, Any]:
    """Ask for a child job for each item; the parent queue `check` creates them."""
    return {"children:check:params": [{"childName": "stock", "item": item} for item in job["items"]]}


def stock(job: dict[str, Any]) -> dict[str, Any]:
    """Look an item up. The parent waits until every child is `done`."""
    return {"done": True, "left": len(job["item"])}


def send(job: dict[str, Any]) -> dict[str, Any]:
    """Send the order."""
    return {"done": True, "parcels": len(job["children:check:jobs"])}


async def main(url: str) -> Job:
    """Create an order, work on it in this process, and return the finished job."""
    async with Flow.open(SHOP, url) as flow:
        order = await flow.create({"customer": 62, "items": ["pen", "paper"]})
        workers = FlowWorkers(flow)
        workers.serve("prepare", prepare)
        workers.parents("check")
        workers.serve("check:stock", stock, count=2)
        workers.serve("send", send)
        async with workers:
            await flow.wait(order, timeout_seconds=30)
        return await flow.get(order, children=True)


if __name__ == "__main__":
    done = asyncio.run(main(sys.argv[1]))
    left = {child.fields["item"]: child.fields["left"] for child in done.children}
    print(f"{done.state} in {done.queue}: {done.fields['parcels']} parcels; left: {left}")  # noqa: T201 - its answer
