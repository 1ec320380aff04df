"""The test's own client of the API server. It bypasses the proxy, so faults do not affect it."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import aiohttp

Raw = dict[str, Any]
MERGE = "application/merge-patch+json"
CALL_SECONDS = 10.0
ATTEMPTS = 4


class RefusedError(RuntimeError):
    """The API server refused a call of the test."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status}: {words}")
        self.status = status


class GoneError(RefusedError):
    """The object does not exist any more."""


class Api:
    """Calls with administrator rights. Paths are URL paths; a body is sent as JSON, or as a merge patch."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def ready(self) -> bool:
        """Whether the API server says that it is ready."""
        try:
            async with self._session.get("/readyz", timeout=aiohttp.ClientTimeout(total=2)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def call(
        self, method: str, path: str, body: Raw | None = None, *, expect: Collection[int] = ()
    ) -> Raw | None:
        """Call the API server; return the answer, or None when it refused with an expected status.

        A broken connection is retried, because this client is not under test. Raises RefusedError for any other
        refusal.
        """
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._call(method, path, body, expect)
            except (aiohttp.ClientError, OSError):  # aiohttp raises OSError subclasses, such as TimeoutError, too
                await asyncio.sleep(0.2)
        return await self._call(method, path, body, expect)

    async def _call(self, method: str, path: str, body: Raw | None, expect: Collection[int]) -> Raw | None:
        kind = MERGE if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body)
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        headers = {"Content-Type": kind}
        async with self._session.request(method, path, data=data, headers=headers, timeout=timeout) as answer:
            content = await answer.read()
            if answer.status in expect:
                return None
            if answer.status >= 400:
                words = f"{method} {path}: {content[:500].decode(errors='replace')}"
                raise (GoneError if answer.status == 404 else RefusedError)(answer.status, words)
            return dict(json.loads(content)) if content else {}

    async def items(self, path: str) -> list[Raw]:
        """List a collection."""
        found = await self.call("GET", path)
        return list((found or {}).get("items") or ())

    async def make_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Make a namespace and its default ServiceAccount, which no controller makes here. Either may exist already."""
        meta: Raw = {"name": name, "labels": dict(labels or {})}
        await self.call("POST", "/api/v1/namespaces", {"metadata": meta}, expect=(409,))
        accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
        await self.call("POST", accounts, {"metadata": {"name": "default"}}, expect=(409,))

    async def token(
        self, namespace: str, *, account: str = "default", audiences: Sequence[str] = (), bound: Raw | None = None
    ) -> str:
        """Return a new token of a ServiceAccount, valid for an hour.

        `audiences` defaults to the API server's own. `bound` is the object that the token is bound to: a pod unless it
        names another kind, by default none.
        """
        spec: Raw = {"expirationSeconds": 3600}
        if audiences:
            spec["audiences"] = list(audiences)
        if bound is not None:
            meta, kind = bound["metadata"], bound.get("kind", "Pod")
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": kind, "name": meta["name"], "uid": meta["uid"]}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        made = await self.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", body)
        assert made is not None
        return str(made["status"]["token"])

    async def follow(self, path: str) -> AsyncIterator[tuple[str, Raw]]:
        """Yield a collection's objects, then its events, for ever, as (type, object); a deletion comes as DELETED."""
        while True:
            listed = await self.call("GET", path) or {}
            for raw in listed.get("items") or ():
                yield "ADDED", raw
            version = listed["metadata"]["resourceVersion"]
            timeout = aiohttp.ClientTimeout(total=None)
            query = {"watch": "1", "resourceVersion": version}
            with suppress(aiohttp.ClientError, OSError):
                async with self._session.get(path, params=query, timeout=timeout, read_bufsize=2**22) as answer:
                    async for line in answer.content:
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            break
                        yield event["type"], event["object"]
            await asyncio.sleep(0.2)
