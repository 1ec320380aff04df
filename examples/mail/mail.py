"""Mails of a shop as tasks of a taskbroker: a mail is sent, tried again, or becomes a dead letter."""

import asyncio

from activity_worker import Activities, Retry, TaskNamespace

app = Activities()
mail = TaskNamespace(app, "mail", retry=Retry(attempts=3, on=(ConnectionError,), delay=1))


@mail.register(name="send", processing_deadline_duration=30)
async def send(order: int, to: str) -> None:
    """Send the mail about an order; an address without @ can never be reached."""
    if "@" not in to:
        raise ValueError(f"order {order}: {to!r} is no address")
    await asyncio.sleep(1)
