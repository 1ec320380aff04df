"""A registry with a handler of each form, for tests that run it in a child process."""

import dataclasses
import datetime as dt
import decimal
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic

from activity_worker import Activities, Context

app = Activities()


@dataclasses.dataclass(frozen=True)
class Order:
    """An input as a dataclass."""

    id: str
    at: dt.datetime
    price: decimal.Decimal = decimal.Decimal(1)


class Picture(pydantic.BaseModel):
    """An input as a pydantic model."""

    name: str
    width: int = pydantic.Field(gt=0)


@app.activity(name="order")
def order(job: Order) -> Order:
    return dataclasses.replace(job, price=job.price * 2)


@app.activity(name="picture")
async def picture(job: Picture, ctx: Context) -> dict[str, Any]:
    ctx.heartbeat({"at": 1})
    return {"picture": job, "lease": ctx.lease, "worker": ctx.worker, "cancelled": ctx.cancelled()}


@app.activity(name="event", version="2")
def event(event, context):  # type: ignore[no-untyped-def]
    return {"keys": sorted(event), "id": context.lease}


@app.activity(name="answers")
def answers(request, respond):  # type: ignore[no-untyped-def]
    respond.success(request.input)


def wrong(first, second):  # type: ignore[no-untyped-def]
    """Have no known form."""


served = Activities()


@served.resource
def journal() -> Iterator[Path]:
    file = Path(os.environ["JOURNAL"])
    with file.open("a") as out:
        out.write("opened ")
    yield file
    with file.open("a") as out:
        out.write("closed")


@served.activity(name="work")
def work(job: Any, journal: Path) -> str:
    return journal.read_text()


unreachable = Activities()
unreachable.activity(work)


@unreachable.resource(name="journal")
def no_journal() -> Iterator[Path]:
    if "JOURNAL" not in os.environ:
        raise ConnectionError("the database does not answer")
    yield Path()
