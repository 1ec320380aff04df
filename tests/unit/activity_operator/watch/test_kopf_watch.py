"""kopf's watches after errors from the API server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from kopf._cogs.clients import errors, fetching, watching
from kopf._cogs.structs.references import Resource

from activity_operator.watch import kopf_watch

PODS = Resource("", "v1", "pods", namespaced=True)
ERROR = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "reason": "InternalError"}}


def event(name: str) -> dict[str, Any]:
    return {"type": "ADDED", "object": {"metadata": {"name": name}}}


async def names(monkeypatch: pytest.MonkeyPatch, listed: object, watched: object) -> list[str]:
    """Return the names of the objects that two rounds of LIST and WATCH yield."""
    monkeypatch.setattr(fetching, "fetch_objs", listed)
    monkeypatch.setattr(watching, "watch_objs", watched)
    settings = kopf_watch.settings()
    settings.watching.reconnect_backoff = 0.0
    watch = watching.infinite_watch(settings=settings, resource=PODS, namespace=None, _iterations=2)
    async with asyncio.timeout(5):
        return [cast("Any", raw)["object"]["metadata"]["name"] async for raw in watch if isinstance(raw, dict)]


async def test_error_event_restarts_only_its_own_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the patch kopf ends for good, with all its watches, after a short outage of the API server's storage."""
    streams = [[event("a"), ERROR, event("never")], [event("b"), ERROR]]

    async def listed(**_: Any) -> AsyncIterator[Any]:
        yield [{"metadata": {"name": "listed"}}], "1"

    async def watched(**_: Any) -> AsyncIterator[Any]:
        for event_or_error in streams.pop(0):
            yield event_or_error

    found = await names(monkeypatch, listed, watched)

    assert found == ["listed", "a", "listed", "b"]


@pytest.mark.parametrize("where", ["list", "watch"])
async def test_refused_list_or_watch_restarts_only_its_own_watch(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A 410 instead of a stream or of a page with an old token must not end the process."""
    gone = [errors.APIClientError(None, status=410, headers={})]

    def refuse(here: str) -> None:
        if here == where and gone:
            raise gone.pop()

    async def listed(**_: Any) -> AsyncIterator[Any]:
        refuse("list")
        yield [{"metadata": {"name": "listed"}}], "1"

    async def watched(**_: Any) -> AsyncIterator[Any]:
        refuse("watch")
        yield event("a")
        yield ERROR

    found = await names(monkeypatch, listed, watched)

    assert found == (["listed", "a"] if where == "list" else ["listed", "listed", "a"])


async def test_refused_token_is_left_to_kopf(monkeypatch: pytest.MonkeyPatch) -> None:
    async def listed(**_: Any) -> AsyncIterator[Any]:
        yield [], "1"

    async def watched(**_: Any) -> AsyncIterator[Any]:
        for event_or_error in (event("a"), ERROR):
            if event_or_error["type"] == "ERROR":
                raise errors.APIUnauthorizedError(None, status=401, headers={})
            yield event_or_error

    monkeypatch.setattr(fetching, "fetch_objs", listed)
    monkeypatch.setattr(watching, "watch_objs", watched)
    watch = watching.infinite_watch(settings=kopf_watch.settings(), resource=PODS, namespace=None, _iterations=1)

    with pytest.raises(errors.APIUnauthorizedError):
        _ = [raw async for raw in watch]


async def test_restarted_watch_is_notified_even_if_its_list_is_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last object of its kind may have gone meanwhile, and only a sweep detects that."""
    calls: list[str] = []

    async def listed(**_: Any) -> AsyncIterator[Any]:
        yield [], "1"

    async def watched(**_: Any) -> AsyncIterator[Any]:
        calls.append("watched")
        yield {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}

    monkeypatch.setattr(fetching, "fetch_objs", listed)
    monkeypatch.setattr(watching, "watch_objs", watched)
    settings = kopf_watch.settings()
    settings.watching.reconnect_backoff = 0.0
    kopf_watch.ON_RELIST.set(lambda: calls.append("listed"))
    watch = watching.infinite_watch(settings=settings, resource=PODS, namespace=None, _iterations=2)
    async with asyncio.timeout(5):
        _ = [raw async for raw in watch]

    assert calls == ["listed", "watched", "listed", "watched"]


async def test_unexpected_error_is_left_to_kopf(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(**_: Any) -> AsyncIterator[Any]:
        yield event("a")
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        _ = [raw async for raw in kopf_watch._restarting(broken)(resource=PODS)]
