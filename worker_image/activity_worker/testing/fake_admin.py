"""The fake's own pages, for tests and demos in another process. JSON in, JSON out.

GET /_fake/state (`?tasks=0` leaves the tasks out), POST /_fake/tasks, POST /_fake/faults, POST /_fake/limits,
DELETE /_fake/faults, POST /_fake/settings.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

from aiohttp import web

from activity_worker.testing.fake_faults import Fault

if TYPE_CHECKING:
    from activity_worker.testing.stepfunctions import StepFunctionsFake


async def handle(fake: "StepFunctionsFake", request: web.BaseRequest) -> web.Response:
    """Answer one request to `/_fake/...`; what is wrong with it comes back with status 400."""
    page = request.path.removeprefix("/_fake/")
    if (request.method, page) == ("GET", "state"):
        return web.json_response(fake.state(with_tasks=request.query.get("tasks") != "0"))
    if (request.method, page) == ("DELETE", "faults"):
        fake.clear_faults()
        return web.json_response({})
    act = {"tasks": _schedule, "faults": _inject, "limits": _limit, "settings": _set}.get(page)
    if request.method != "POST" or act is None:
        return web.json_response({"error": f"there is no {request.method} {request.path}"}, status=404)
    try:
        return web.json_response(act(fake, await request.json()))
    except (KeyError, TypeError, ValueError) as error:
        return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=400)


def _schedule(fake: "StepFunctionsFake", said: dict[str, Any]) -> dict[str, Any]:
    """Add tasks: activityArn, and if wanted input, count, heartbeatSeconds, timeoutSeconds."""
    tasks = fake.schedule(
        said["activityArn"],
        said.get("input", "{}"),
        count=int(said.get("count", 1)),
        heartbeat_seconds=said.get("heartbeatSeconds"),
        timeout_seconds=said.get("timeoutSeconds"),
    )
    return {"scheduled": len(tasks)}


def _inject(fake: "StepFunctionsFake", said: dict[str, Any]) -> dict[str, Any]:
    """Inject a fault: operation, kind (see Fault), times (null: until cleared)."""
    fake.inject(said["operation"], Fault(said["kind"]), said.get("times", 1))
    return {}


def _limit(fake: "StepFunctionsFake", said: dict[str, Any]) -> dict[str, Any]:
    """Limit the rate of an operation: operation, perSecond, burst."""
    fake.faults.throttle(said["operation"], per_second=float(said["perSecond"]), burst=float(said.get("burst", 1)))
    return {}


def _set(fake: "StepFunctionsFake", said: dict[str, Any]) -> dict[str, Any]:
    """Change settings by the names of FakeSettings; the answer is all of them."""
    known = dataclasses.asdict(fake.settings)
    for name, value in said.items():
        if name not in known:
            raise ValueError(f"no setting is called {name!r}; there are {', '.join(known)}")
        setattr(fake.settings, name, type(known[name])(value))
    return dataclasses.asdict(fake.settings)
