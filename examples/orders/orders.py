"""An order as a task of eight steps: it is paid before it is packed, and refunded when it cannot be.

`python orders.py` runs one order that is delivered and one that is out of stock, on SQLite beside this file, and shows
both. `activity-worker steps run orders:tasks` starts a runner, `... steps new orders:tasks order '{...}'` creates an
order. Each effect on the outside world, a mail, a charge, a parcel, is a line in a journal (`journal.py`).
"""

import asyncio
import os
from pathlib import Path
from typing import Any

import journal

from activity_worker.steps import FinalError, RunnerOptions, StepError, Task, Tasks, TaskStore, current, show, step

HERE = Path(__file__).parent
ON_THE_SHELF = {"teapot", "kettle"}
IN_THE_SHOP = {*ON_THE_SHELF, "samovar"}


def did(what: str, order: int, **more: Any) -> None:
    """Write an effect into the journal, under the key of the call that made it."""
    journal.write({"did": what, "order": order, "key": current().key, **more})


def was_done(_: dict[str, Any]) -> dict[str, Any] | None:
    """Return the journal's line of the checked call, None if there is none. A call and its check have the same key."""
    return journal.find(current().key)


class Email:
    """A module: its public methods are `module.email.NAME`."""

    def __init__(self) -> None:
        for name in ("received", "unavailable", "verify_payment", "canceled", "shipped", "delivered"):
            setattr(self, f"order_{name}", self._sender(name))

    def _sender(self, name: str) -> Any:
        return lambda order: did(f"mail: {name}", order["number"])


# Up to five quick retries; the check finds a call whose result was lost before the store had it.
SURE = {"retry": {"retries": 5, "delays": ["1s"]}, "check": "was_done"}


def surely(method: str, **more: Any) -> dict[str, Any]:
    """Return a call with retries, and with a check that looks for the effect before each retry."""
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
    """Refuse an item that the shop does not sell."""
    if order["item"] not in IN_THE_SHOP:
        raise StepError("NotInTheShop", f"there is no {order['item']} in the shop")


@order.method
def capture_payment(order: dict[str, Any]) -> dict[str, Any]:
    """Charge the card. The return value is merged into the task's data."""
    did("captured", order["number"], amount=order["quantity"] * order["price"])
    return {"payment": {"captured": order["quantity"] * order["price"]}}


@order.method
def refund_payment(order: dict[str, Any]) -> None:
    """Reverse `capture_payment`."""
    did("refunded", order["number"], amount=order["quantity"] * order["price"])


@order.method
def fulfil(order: dict[str, Any]) -> None:
    """Pack the item. The shop sells items that may be out of stock, and a retry does not change that."""
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
    """Mark the order as completed."""
    return {"completed": True}


exception = Task("delivery_exception", ["ask_carrier"])


@exception.method
def ask_carrier(order: dict[str, Any]) -> None:
    """Have somebody look for the parcel."""
    did("asked the carrier", order["number"])


tasks = Tasks([order, exception], modules={"email": Email()})


async def main() -> None:
    """Run two orders and show their results."""
    store = await TaskStore.open(os.environ.get("ACTIVITY_STORE_URL", f"sqlite:///{HERE / 'orders.db'}"))
    await tasks.sync(store)
    made = [
        await tasks.new(store, "order", {"number": number, "item": item})
        for number, item in enumerate(("teapot", "samovar"), 1)
    ]
    await tasks.runner(store, RunnerOptions("example")).run_due()
    for name in made:
        print(await show(store, name), end="\n\n")  # noqa: T201 - its answer
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())
