"""An order as a task of eight steps: it is paid before it is packed, and refunded when it cannot be.

`python orders.py` runs one order that is delivered and one that the warehouse has not, on SQLite beside this file, and
shows both. `activity-worker steps run orders:tasks` is a runner, `... steps new orders:tasks order '{...}'` an order.
What the outside world would do, a mail, a charge, a parcel, is a line in a journal (`journal.py`).
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import journal

from activity_worker.steps import FinalError, RunnerOptions, StepError, Task, Tasks, TaskStore, current, show, step

HERE = Path(__file__).parent
ON_THE_SHELF = {"teapot", "kettle"}
IN_THE_SHOP = {*ON_THE_SHELF, "samovar"}


def did(what: str, order: int, **more: Any) -> None:
    """Do something in the world, under a key by which it can be found again."""
    journal.write({"did": what, "order": order, "key": current().key, **more})


def was_done(_: dict[str, Any]) -> dict[str, Any] | None:
    """Whether the call that this check belongs to has been made: by its key, which the check shares."""
    return journal.find(current().key)


class Email:
    """A module: its public methods are `module.email.NAME`."""

    def __init__(self) -> None:
        for name in ("received", "unavailable", "verify_payment", "canceled", "shipped", "delivered"):
            setattr(self, f"order_{name}", self._sender(name))

    def _sender(self, name: str) -> Any:
        return lambda order: did(f"mail: {name}", order["number"])


# Five quick tries; what is lost between the world and the store is asked about before it is done again.
SURE = {"retry": {"retries": 5, "delays": ["1s"]}, "check": "was_done"}


def surely(method: str, **more: Any) -> dict[str, Any]:
    """Return a call that is retried, and whose effect is looked for before it is made again."""
    return {"method": method, **SURE, **more}


order = Task(
    "order",
    [
        surely("module.email.order_received"),
        step("check_inventory", error=surely("module.email.order_unavailable")),
        surely(
            "capture_payment",
            error=surely("module.email.order_verify_payment"),
            reverse=surely("refund_payment"),
        ),
        surely("fulfil", error=surely("module.email.order_canceled")),
        surely("module.email.order_shipped"),
        step("check_delivery", error="task.delivery_exception.new"),
        surely("module.email.order_delivered"),
        "complete",
    ],
    data={"quantity": 1, "price": 20},
    methods={"was_done": was_done},
)


@order.method
def check_inventory(order: dict[str, Any]) -> None:
    """Refuse what the shop does not have."""
    if order["item"] not in IN_THE_SHOP:
        raise StepError("NotInTheShop", f"there is no {order['item']} in the shop")


@order.method
def capture_payment(order: dict[str, Any]) -> dict[str, Any]:
    """Charge the card; what is returned is merged into the task's data."""
    did("captured", order["number"], amount=order["quantity"] * order["price"])
    return {"payment": {"captured": order["quantity"] * order["price"]}}


@order.method
def refund_payment(order: dict[str, Any]) -> None:
    """Take `capture_payment` back."""
    did("refunded", order["number"], amount=order["quantity"] * order["price"])


@order.method
def fulfil(order: dict[str, Any]) -> None:
    """Pack it. What is in the shop need not be on the shelf, and trying again does not put it there."""
    if order["item"] not in ON_THE_SHELF:
        raise FinalError("OutOfStock", f"the last {order['item']} has gone")
    did("packed", order["number"])


@order.method
async def check_delivery(order: dict[str, Any]) -> None:
    """Ask the carrier. Methods may be coroutines."""
    if order.get("lost"):
        raise StepError("LostParcel", "the carrier cannot find it")


@order.method
def complete(_: dict[str, Any]) -> dict[str, Any]:
    """Close the order's file."""
    return {"completed": True}


exception = Task("delivery_exception", ["ask_carrier"])


@exception.method
def ask_carrier(order: dict[str, Any]) -> None:
    """Have somebody look for the parcel."""
    did("asked the carrier", order["number"])


tasks = Tasks([order, exception], modules={"email": Email()})


async def main() -> None:
    """Run two orders and show what became of them."""
    store = await TaskStore.open(os.environ.get("ACTIVITY_STORE_URL", f"sqlite:///{HERE / 'orders.db'}"))
    await tasks.sync(store)
    made = [
        await tasks.new(store, "order", {"number": number, "item": item})
        for number, item in enumerate(("teapot", "samovar"), 1)
    ]
    await tasks.runner(store, RunnerOptions("example")).run_due()
    for name in made:
        stored = await store.get(name)
        definition = await store.definition(stored.instance.definition_id)
        print(show.instance(stored, definition, await store.history(name), time.time()), end="\n\n")  # noqa: T201 - its answer
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())
