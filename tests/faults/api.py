"""The test's own way to the API server: beside the proxy, so that no fault befalls it."""

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
    """There is no such object any more."""


class Api:
    """Calls as an administrator. Paths are written out; a body is sent as JSON, or as a merge patch."""

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
        """Call; returns the answer, None when it was refused with an expected status. Raises RefusedError.

        Tried again when a connection breaks: the test's own ways to the API server are not what is tested.
        """
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._call(method, path, body, expect)
            except (aiohttp.ClientError, OSError):  # a call that took too long is among the last
                await asyncio.sleep(0.2)
        return await self._call(method, path, body, expect)

    async def _call(self, method: str, path: str, body: Raw | None, expect: Collection[int]) -> Raw | None:
        kind = MERGE if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body)
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        headers = {"Content-Type": kind}
        async with self._session.request(method, path, data=data, headers=headers, timeout=timeout) as answer:
            said = await answer.read()
            if answer.status in expect:
                return None
            if answer.status >= 400:
                words = f"{method} {path}: {said[:500].decode(errors='replace')}"
                raise (GoneError if answer.status == 404 else RefusedError)(answer.status, words)
            return dict(json.loads(said)) if said else {}

    async def items(self, path: str) -> list[Raw]:
        """List a collection."""
        found = await self.call("GET", path)
        return list((found or {}).get("items") or ())

    async def make_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Make a namespace with its default ServiceAccount, which no controller makes here; both may be there."""
        meta: Raw = {"name": name, "labels": dict(labels or {})}
        await self.call("POST", "/api/v1/namespaces", {"metadata": meta}, expect=(409,))
        accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
        await self.call("POST", accounts, {"metadata": {"name": "default"}}, expect=(409,))

    async def token(
        self, namespace: str, *, account: str = "default", audiences: Sequence[str] = (), bound: Raw | None = None
    ) -> str:
        """Return a new token of a ServiceAccount, good for an hour.

        `audiences` are the API server's own by default. `bound` is the object that the token is bound to, a pod if it
        does not say its kind, none by default.
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
        """Yield what a collection holds, then its events, for ever: (type, object); a deleted one as DELETED."""
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
