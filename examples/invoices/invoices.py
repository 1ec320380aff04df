"""Invoices of an Amazon SWF workflow: two activity types on one task list, each with a handler of its own.

    render-invoice 1   {"number": 7, "lines": [{"item": "teapot", "cents": 1950, "count": 2}]}
                       -> {"number": 7, "cents": 3900, "text": "Invoice 7 ..."}
    check-address 1    {"street": "1 High Street", "city": "Kent"} -> {"city": "KENT", ...}

A handler's exception fails the activity task: its type is the reason, and its message is in the details. The decider
schedules the task again, or gives up.
"""

from typing import Any

from activity_worker import Activities
from activity_worker.activity import TaskRequest

app = Activities()


class UnknownAddressError(ValueError):
    """The address has no street or no city. A decider can tell it by its name."""


@app.activity(name="render-invoice", version="1")
def render_invoice(request: TaskRequest) -> dict[str, Any]:
    """Return the invoice's total in cents, and its text."""
    order = request.input
    lines = [(line["item"], line["count"], line["count"] * line["cents"]) for line in order["lines"]]
    total = sum(cents for _, _, cents in lines)
    body = [f"{count:>4} x {item:<30} {euros(cents)}" for item, count, cents in lines]
    text = "\n".join([f"Invoice {order['number']}", *body, f"{'total':>37} {euros(total)}"])
    return {"number": order["number"], "cents": total, "text": text}


@app.activity(name="check-address", version="1")
def check_address(request: TaskRequest) -> dict[str, Any]:
    """Return the address as a letter shows it."""
    street, city = request.input.get("street", "").strip(), request.input.get("city", "").strip()
    if not (street and city):
        raise UnknownAddressError("the address needs a street and a city")
    return {"street": street, "city": city.upper()}


def euros(cents: int) -> str:
    """Return an amount as text, such as 19.50."""
    return f"{cents // 100:>6}.{cents % 100:02}"
