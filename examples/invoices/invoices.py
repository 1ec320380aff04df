"""Invoices of an Amazon SWF workflow: two activity types on one task list, each with a handler of its own.

    render-invoice 1   {"number": 7, "lines": [{"item": "teapot", "cents": 1950, "count": 2}]}
                       -> {"number": 7, "cents": 3900, "text": "Invoice 7 ..."}
    check-address 1    {"street": "1 High Street", "city": "Kent"} -> {"city": "KENT", ...}

A handler's exception fails the activity task: its type is the reason, and its message is in the details. The decider
schedules the task again, or gives up.
"""

from dataclasses import dataclass

from activity_worker import Activities

app = Activities()


@dataclass
class Line:
    """A line of an order."""

    item: str
    cents: int
    count: int = 1


@dataclass
class Order:
    """What an invoice is about."""

    number: int
    lines: list[Line]


@dataclass
class Invoice:
    """An invoice's total in cents, and its text."""

    number: int
    cents: int
    text: str


@dataclass
class Address:
    """Where an invoice goes."""

    street: str = ""
    city: str = ""


class UnknownAddressError(ValueError):
    """The address has no street or no city. A decider can tell it by its name."""


@app.activity(name="render-invoice", version="1")
def render_invoice(order: Order) -> Invoice:
    """Return the invoice of an order."""
    total = sum(line.count * line.cents for line in order.lines)
    body = [f"{line.count:>4} x {line.item:<30} {euros(line.count * line.cents)}" for line in order.lines]
    text = "\n".join([f"Invoice {order.number}", *body, f"{'total':>37} {euros(total)}"])
    return Invoice(order.number, total, text)


@app.activity(name="check-address", version="1")
def check_address(address: Address) -> Address:
    """Return the address as a letter shows it."""
    street, city = address.street.strip(), address.city.strip()
    if not (street and city):
        raise UnknownAddressError("the address needs a street and a city")
    return Address(street, city.upper())


def euros(cents: int) -> str:
    """Return an amount as text, such as 19.50."""
    return f"{cents // 100:>6}.{cents % 100:02}"
