"""The benchmarks' client of the API server: calls under a user agent of its own, watches, and metrics."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from activity_operator.cluster.kube import from_kubeconfig, read_access
from activity_operator.cluster.resources import Raw, Resource

#: The User-Agent of the benchmark's own calls, which tells them apart from the operator's.
USER_AGENT = "activitypool-bench"
#: The field manager of the objects that the benchmark applies.
FIELD_MANAGER = "activitypool-bench"
_APPLY = "application/apply-patch+yaml"
_CALL_SECONDS = 30.0


class RefusedError(RuntimeError):
    """The API server refused a call: `status` and its words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class ApiServer:
    """Calls as the cluster's administrator; an asynchronous context manager."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    async def __aenter__(self) -> Self:
        found = await read_access(from_kubeconfig(str(self._kubeconfig)))
        self.url, self.ca_file = found.server, Path(found.ca_path or "")
        trust = ssl.create_default_context(cafile=found.ca_path)
        if found.certificate_path:
            trust.load_cert_chain(found.certificate_path, found.private_key_path)
        headers = {"User-Agent": USER_AGENT} | ({"Authorization": f"Bearer {found.token}"} if found.token else {})
        self._session = aiohttp.ClientSession(
            found.server, headers=headers, connector=aiohttp.TCPConnector(ssl=trust, limit=20)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def text(self, path: str) -> str:
        """GET a page that is no object, such as /metrics."""
        async with self._session.get(path, timeout=aiohttp.ClientTimeout(total=_CALL_SECONDS)) as answer:
            answer.raise_for_status()
            return await answer.text()

    async def get(self, path: str) -> Raw | None:
        """Read an object or a whole collection; None when there is none."""
        try:
            return await self._call("GET", path)
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    async def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], *, of: str = "") -> Raw:
        """Create an object, or with `of` ("name/subresource") a subresource of an existing one."""
        path = resource.path(namespace) + (f"/{of}" if of else "")
        return await self._call("POST", path, {"apiVersion": resource.api_version, "kind": resource.kind, **body})

    async def apply_status(self, resource: Resource, namespace: str, name: str, status: Mapping[str, Any]) -> Raw:
        """Server-side apply a few fields of a status, as another writer beside the operator."""
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name},
            "status": dict(status),
        }
        path = f"{resource.path(namespace, name, 'status')}?fieldManager={FIELD_MANAGER}&force=true"
        return await self._call("PATCH", path, body, _APPLY)

    async def delete(self, resource: Resource, namespace: str, name: str) -> None:
        """Delete an object and its dependents; a missing object is no error."""
        try:
            await self._call("DELETE", f"{resource.path(namespace, name)}?propagationPolicy=Background")
        except RefusedError as error:
            if error.status != 404:
                raise

    async def watch(self, resource: Resource, namespace: str, version: str) -> AsyncIterator[Raw]:
        """Yield the events of a collection after a resourceVersion, until cancelled or the server ends the watch."""
        path = f"{resource.path(namespace)}?watch=1&allowWatchBookmarks=false&resourceVersion={version}"
        async with self._session.get(path, timeout=aiohttp.ClientTimeout(total=None), read_bufsize=2**22) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                yield json.loads(line)

    async def _call(self, method: str, path: str, body: Raw | None = None, content: str = "application/json") -> Raw:
        data = None if body is None else json.dumps(body)
        async with self._session.request(
            method, path, data=data, headers={"Content-Type": content},
            timeout=aiohttp.ClientTimeout(total=_CALL_SECONDS),
        ) as answer:  # fmt: skip
            payload = await answer.read()
            if answer.status >= 400:
                raise RefusedError(answer.status, payload[:500].decode(errors="replace"))
            return dict(json.loads(payload))
