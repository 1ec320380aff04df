"""A fake's own pages, for tests and demos in another process. JSON in, JSON out.

GET /_fake/state (`?tasks=0` leaves the tasks out), POST /_fake/tasks, POST /_fake/faults, POST /_fake/limits,
DELETE /_fake/faults, POST /_fake/settings, and those that one fake alone has (`HttpFake.answer_page`).
"""

import dataclasses
from typing import TYPE_CHECKING, Any

from aiohttp import web

from activity_worker.testing.fake_faults import Fault

if TYPE_CHECKING:
    from activity_worker.testing.fake_http import HttpFake


async def handle(fake: "HttpFake", request: web.BaseRequest) -> web.Response:
    """Answer one request to `/_fake/...`; what is wrong with it comes back with status 400."""
    page = request.path.removeprefix("/_fake/")
    if (request.method, page) == ("GET", "state"):
        return web.json_response(fake.state(with_tasks=request.query.get("tasks") != "0"))
    if (request.method, page) == ("DELETE", "faults"):
        fake.clear_faults()
        return web.json_response({})
    if request.method == "POST":
        try:
            answer = _act(fake, page, await request.json())
        except (KeyError, TypeError, ValueError) as error:
            return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=400)
        if answer is not None:
            return web.json_response(answer)
    return web.json_response({"error": f"there is no {request.method} {request.path}"}, status=404)


def _act(fake: "HttpFake", page: str, order: dict[str, Any]) -> dict[str, Any] | None:
    own = {"tasks": _schedule, "faults": _inject, "limits": _limit, "settings": _set}.get(page)
    return fake.answer_page(page, order) if own is None else own(fake, order)


def _schedule(fake: "HttpFake", order: dict[str, Any]) -> dict[str, Any]:
    """Add tasks, as the fake's `schedule_from` reads the order."""
    return {"scheduled": fake.schedule_from(order)}


def _inject(fake: "HttpFake", said: dict[str, Any]) -> dict[str, Any]:
    """Inject a fault: operation, kind (see Fault), times (null: until cleared)."""
    fake.inject(said["operation"], Fault(said["kind"]), said.get("times", 1))
    return {}


def _limit(fake: "HttpFake", said: dict[str, Any]) -> dict[str, Any]:
    """Limit the rate of an operation: operation, perSecond, burst."""
    fake.faults.throttle(said["operation"], per_second=float(said["perSecond"]), burst=float(said.get("burst", 1)))
    return {}


def _set(fake: "HttpFake", said: dict[str, Any]) -> dict[str, Any]:
    """Change settings by the names of their fields; the answer is all of them."""
    settings: Any = fake.http_settings
    known = dataclasses.asdict(settings)
    for name, value in said.items():
        if name not in known:
            raise ValueError(f"no setting is called {name!r}; there are {', '.join(known)}")
        setattr(settings, name, type(known[name])(value))
    return dataclasses.asdict(settings)
