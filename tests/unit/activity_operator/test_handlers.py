"""What becomes of kopf's watch when the API server tells of trouble in its stream."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from kopf._cogs.clients import errors, fetching, watching
from kopf._cogs.structs.references import Resource

from activity_operator import handlers

PODS = Resource("", "v1", "pods", namespaced=True)
ERROR = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "reason": "InternalError"}}


def event(name: str) -> dict[str, Any]:
    return {"type": "ADDED", "object": {"metadata": {"name": name}}}


async def names(monkeypatch: pytest.MonkeyPatch, listed: object, watched: object) -> list[str]:
    """Return what two rounds of LIST and WATCH tell of, by name."""
    monkeypatch.setattr(fetching, "fetch_objs", listed)
    monkeypatch.setattr(watching, "watch_objs", watched)
    settings = handlers.settings()
    settings.watching.reconnect_backoff = 0.0
    watch = watching.infinite_watch(settings=settings, resource=PODS, namespace=None, _iterations=2)
    async with asyncio.timeout(5):
        return [cast("Any", raw)["object"]["metadata"]["name"] async for raw in watch if isinstance(raw, dict)]


async def test_an_error_in_a_stream_costs_that_stream_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage behind the API server was away for a moment; kopf would end for good, and all watches with it."""
    streams = [[event("a"), ERROR, event("never")], [event("b"), ERROR]]

    async def listed(**_: Any) -> AsyncIterator[Any]:
        yield [{"metadata": {"name": "listed"}}], "1"

    async def watched(**_: Any) -> AsyncIterator[Any]:
        for told in streams.pop(0):
            yield told

    found = await names(monkeypatch, listed, watched)

    assert found == ["listed", "a", "listed", "b"]


@pytest.mark.parametrize("where", ["list", "watch"])
async def test_a_refusal_of_a_list_or_a_watch_costs_that_stream_only(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """410 in place of a stream, or of a page whose token was too old: the process ended, and all polls with it."""
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


async def test_a_refused_token_is_kopf_s_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def listed(**_: Any) -> AsyncIterator[Any]:
        yield [], "1"

    async def watched(**_: Any) -> AsyncIterator[Any]:
        for told in (event("a"), ERROR):
            if told["type"] == "ERROR":
                raise errors.APIUnauthorizedError(None, status=401, headers={})
            yield told

    monkeypatch.setattr(fetching, "fetch_objs", listed)
    monkeypatch.setattr(watching, "watch_objs", watched)
    watch = watching.infinite_watch(settings=handlers.settings(), resource=PODS, namespace=None, _iterations=1)

    with pytest.raises(errors.APIUnauthorizedError):
        _ = [raw async for raw in watch]


async def test_a_watch_that_begins_anew_is_told_of_though_nothing_is_left_to_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What went meanwhile may have been the last of its kind: only a sweep finds that."""
    told: list[str] = []

    async def listed(**_: Any) -> AsyncIterator[Any]:
        yield [], "1"

    async def watched(**_: Any) -> AsyncIterator[Any]:
        told.append("watched")
        yield {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}

    monkeypatch.setattr(fetching, "fetch_objs", listed)
    monkeypatch.setattr(watching, "watch_objs", watched)
    settings = handlers.settings()
    settings.watching.reconnect_backoff = 0.0
    handlers.BEGAN_ANEW.set(lambda: told.append("listed"))
    watch = watching.infinite_watch(settings=settings, resource=PODS, namespace=None, _iterations=2)
    async with asyncio.timeout(5):
        _ = [raw async for raw in watch]

    assert told == ["listed", "watched", "listed", "watched"]


async def test_any_other_error_is_kopf_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(**_: Any) -> AsyncIterator[Any]:
        yield event("a")
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        _ = [raw async for raw in handlers._forgiving(broken)(resource=PODS)]
