"""The client of the Kubernetes API: raw dicts in and out, over the transport of `kubernetes.aio`.

Typed models are not used: decoding them costs seven times as much, and they refuse partial objects. Each call has a
time-out. A write also passes its time-out to the server, so that it cannot take effect after its sender has lost the
Lease (`WRITE_TIMEOUT_SECONDS` fits into the gap between the renew deadline and the Lease's duration).
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import aiohttp
from kubernetes.aio import client as transport
from kubernetes.aio import config as credentials

from activity_operator.api.text import printable
from activity_operator.cluster import fence, json_depth
from activity_operator.cluster.resources import TOKEN_REVIEWS, Raw, Raws, Resource

FIELD_MANAGER = "activitypool"
WRITE_TIMEOUT_SECONDS = 5.0
#: Time-outs of the tries of a GET or of a LIST's page. The leases that a new leader takes over get no heartbeat until
#: its first LIST is complete, and they last about 30 s: a hanging connection must not take all of that time.
READ_TIMEOUTS_SECONDS = (5.0, 10.0, 30.0)
#: Objects per page of a LIST. Other clients use 500, which decode into 40 MB at a time here.
PAGE_SIZE = 100
#: How many times a LIST is tried if its continue token expires.
LIST_ATTEMPTS = 3

#: The charset keeps the transport from encoding the body itself, as JSON with escapes that YAML lacks (see `_yaml`).
APPLY = "application/apply-patch+yaml; charset=utf-8"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
#: The API server's message, with status 422, for a JSON patch with a failed `test`.
_UNTRUE = "the server rejected our request due to an error in our request"

#: Characters that YAML requires to be escaped: control characters, line breaks, and non-characters.
_NOT_YAML = re.compile("[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")

log = logging.getLogger(__name__)


class KubeError(Exception):
    """A call to the Kubernetes API failed."""


class ApiUnreachableError(KubeError):
    """The API server did not answer: the connection was refused or reset, or the call timed out."""


class ApiError(KubeError):
    """The API server refused a call: HTTP `status`, machine-readable `reason` (such as NotFound), and message."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def conflict(self) -> bool:
        """Whether the object has changed, or exists already."""
        return self.status == 409

    @property
    def missing(self) -> bool:
        """Whether the object does not exist."""
        return self.status == 404

    @classmethod
    def from_answer(cls, status: int, body: bytes, headers: Mapping[str, str]) -> Self:
        """Read a Status object; of any other answer (a proxy's page) take the first 200 bytes."""
        wait = headers.get("Retry-After", "")
        retry_after = float(wait) if wait.isdigit() else 0.0
        try:
            body_json = json.loads(body)
            return cls(
                status, str(body_json.get("reason", "")), printable(str(body_json.get("message", ""))), retry_after
            )
        except (ValueError, AttributeError):
            return cls(status, "", printable(body[:200].decode(errors="replace")), retry_after)


class Credentials(Protocol):
    """Fills a transport configuration with the API server's address and the operator's credentials."""

    async def __call__(self, configuration: Any) -> None:
        """Set host, CA and credentials on `configuration`."""
        ...


async def in_cluster(configuration: Any) -> None:
    """Use the pod's ServiceAccount; the token file is read again every minute."""
    credentials.load_incluster_config(client_configuration=configuration)


def from_kubeconfig(path: str) -> Credentials:
    """Use a kubeconfig file, for running outside a cluster."""

    async def load(configuration: Any) -> None:
        await credentials.load_kube_config(config_file=path, client_configuration=configuration, persist_config=False)

    return load


class KubeClient:
    """Calls to one API server. `observed(verb, plural, code)` is called after each call; code 0 means no answer.

    After a 401 the client reads its credentials again (`load`) and repeats the call once if the token has changed.
    """

    def __init__(
        self, api: Any, observed: Callable[[str, str, int], None] | None = None, load: Credentials | None = None
    ) -> None:
        self._api = api
        self._observed = observed or (lambda *_: None)
        self._load = load

    @classmethod
    async def connect(cls, load: Credentials, observed: Callable[[str, str, int], None] | None = None) -> Self:
        """Read the credentials and return a client; sends nothing."""
        json_depth.install()
        configuration = type.__call__(transport.Configuration)
        await load(configuration)
        configuration.trace_configs = [fence.tracing()]
        return cls(transport.ApiClient(configuration=configuration), observed, load)

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def get(self, resource: Resource, namespace: str, name: str) -> Raw:
        """Read one object; raises `ApiError` (404 if it does not exist)."""
        return await self._read(resource, resource.path(namespace, name))

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        label_selector: str = "",
        keep: Callable[[Raw], Raw] = lambda raw: raw,
    ) -> tuple[Raws, str]:
        """Return all objects and the resourceVersion of the LIST, read from the storage and not from a cache.

        The pages come from one snapshot; if it expires midway, the LIST starts again. `keep` reduces each object as
        soon as its page arrives (default: not at all).
        """
        for attempt in range(1, LIST_ATTEMPTS + 1):
            try:
                return await self._pages(resource, namespace, label_selector, keep)
            except ApiError as error:
                if error.status != 410 or attempt == LIST_ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    async def _pages(
        self, resource: Resource, namespace: str, label_selector: str, keep: Callable[[Raw], Raw]
    ) -> tuple[Raws, str]:
        found: Raws = []
        query = {"limit": str(PAGE_SIZE)}
        if label_selector:
            query["labelSelector"] = label_selector
        version = ""
        while True:
            page = await self._read(resource, resource.path(namespace), query)
            found += map(keep, page.get("items") or ())
            meta = page.get("metadata", {})
            version = version or str(meta.get("resourceVersion", ""))
            if not meta.get("continue"):
                return found, version
            query["continue"] = meta["continue"]

    async def _read(self, resource: Resource, path: str, query: Mapping[str, str] | None = None) -> Raw:
        *hasty, last = READ_TIMEOUTS_SECONDS
        for seconds in hasty:
            try:
                return await self._call("GET", resource, path, query=query, timeout=seconds)
            except ApiUnreachableError as error:
                if not isinstance(error.__cause__, TimeoutError):
                    raise
                log.info("%s, asking again", error)
        return await self._call("GET", resource, path, query=query, timeout=last)

    async def create(self, resource: Resource, namespace: str, body: Raw) -> Raw:
        """Create one object; 409 if the name is taken."""
        return await self._call(
            "POST", resource, resource.path(namespace), body=body, query={"fieldManager": FIELD_MANAGER}
        )

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: Raw, timeout: float | None = None
    ) -> Raw:
        """Replace the object; with a metadata.resourceVersion in `body`, 409 unless it is the current one."""
        query = {"fieldManager": FIELD_MANAGER}
        return await self._call(
            "PUT", resource, resource.path(namespace, name), body=body, query=query, timeout=timeout
        )

    async def apply(
        self, resource: Resource, namespace: str, name: str, body: Raw, *, subresource: str = "", dry_run: bool = False
    ) -> Raw:
        """Server-side apply the fields of `body`, even if other managers own them; unknown fields are refused (400)."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        full = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        path = resource.path(namespace, name, subresource)
        return await self._call("PATCH", resource, path, body=full, query=query, content_type=APPLY)

    async def apply_status(self, resource: Resource, namespace: str, name: str, body: Raw) -> Raw:
        """Server-side apply on /status."""
        return await self.apply(resource, namespace, name, body, subresource="status")

    async def merge_patch(self, resource: Resource, namespace: str, name: str, body: Raw) -> Raw:
        """JSON merge patch; metadata.resourceVersion or metadata.uid in `body` are preconditions (409)."""
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        path = resource.path(namespace, name)
        return await self._call("PATCH", resource, path, body=body, query=query, content_type=MERGE)

    async def json_patch(self, resource: Resource, namespace: str, name: str, operations: Raws) -> Raw:
        """JSON patch; each `test` among the operations is a precondition (409 if it fails)."""
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        path = resource.path(namespace, name)
        try:
            return await self._call("PATCH", resource, path, body=operations, query=query, content_type=JSON_PATCH)
        except ApiError as error:
            if error.status != 422 or _UNTRUE not in error.message:
                raise
            raise ApiError(
                409, "Conflict", f"{resource.plural} {namespace}/{name} is not what it was any more"
            ) from error

    async def delete(self, resource: Resource, namespace: str, name: str, uid: str, resource_version: str = "") -> None:
        """Delete the object with that UID (409 if the name belongs to another object); a missing object is no error."""
        preconditions = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        body: Raw = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        body["propagationPolicy"] = "Background"
        try:
            await self._call("DELETE", resource, resource.path(namespace, name), body=body)
        except ApiError as error:
            if not error.missing:
                raise

    async def create_token_review(self, token: str, audience: str) -> Raw:
        """Return the `status` of a TokenReview: whether the token is valid for the audience, and whose it is."""
        spec = {"token": token, "audiences": [audience]}
        body = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind, "spec": spec}
        answer = await self._call("POST", TOKEN_REVIEWS, TOKEN_REVIEWS.path(), body=body)
        return dict(answer.get("status") or {})

    async def _call(
        self, method: str, resource: Resource, path: str, *, timeout: float | None = None, **sent: Any
    ) -> Raw:
        seconds = timeout or WRITE_TIMEOUT_SECONDS
        loop, token = asyncio.get_running_loop(), self._token()
        ends = loop.time() + seconds
        try:
            return await self._send(method, resource, path, seconds, **sent)
        except ApiError as error:
            # A call with a refused token has had no effect, so it may be repeated within its time-out.
            if error.status != 401 or not await self._renewed(token) or ends - loop.time() < 1:
                raise
        return await self._send(method, resource, path, ends - loop.time(), **sent)

    def _token(self) -> str:
        return str(self._api.configuration.api_key.get("BearerToken") or "")

    async def _renewed(self, refused: str) -> bool:
        """Read the credentials again if that has not happened; return whether the token is a different one now."""
        if self._load is not None and self._token() == refused:
            try:
                await self._load(self._api.configuration)
            except Exception as error:  # noqa: BLE001 - a file being written, say; its text is nothing for a log
                log.warning("the credentials cannot be read again: %s", type(error).__name__)
        return self._token() != refused

    async def _send(
        self,
        method: str,
        resource: Resource,
        path: str,
        seconds: float,
        *,
        body: Raw | Raws | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Raw:
        asked = {**(query or {}), "timeout": f"{max(int(seconds), 1)}s"}
        headers = {"Accept": "application/json", "Content-Type": content_type}
        status = 0
        sent: Raw | Raws | bytes | None = _yaml(body) if isinstance(body, dict) and content_type == APPLY else body
        try:
            request = await self._api.param_serialize(
                method, path, query_params=list(asked.items()), header_params=headers, body=sent,
                auth_settings=["BearerToken"],
            )  # fmt: skip
            answer = await self._api.call_api(
                *request, _request_timeout=aiohttp.ClientTimeout(total=seconds), _preload_content=False
            )
            data = await answer.read()
            status = answer.status
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            fence.raise_refusal()
            detail = str(error) or f"{type(error).__name__} after {seconds:g} s at most"
            raise ApiUnreachableError(f"{method} {path}: no answer: {detail}") from error
        finally:
            self._observed(method, resource.plural, status)
        if status >= 400:
            raise ApiError.from_answer(status, data, answer.headers)
        try:
            return dict(json.loads(data))
        except (TypeError, ValueError):
            # The page of a proxy, for example: treat it like a missing answer, so that the call is repeated.
            raise ApiUnreachableError(f"{method} {path}: the answer is no JSON object") from None


def _yaml(body: Raw) -> bytes:
    """Return the body as JSON that is also valid YAML, which has no surrogate pairs and allows fewer raw characters."""
    text = json.dumps(body, ensure_ascii=False)
    return _NOT_YAML.sub(lambda found: f"\\u{ord(found.group()):04x}", text).encode()


@dataclass(frozen=True, slots=True)
class ApiServerAccess:
    """The API server's address and the operator's credentials, for another client (kopf's)."""

    server: str
    ca_path: str | None
    token: str | None = field(repr=False)
    certificate_path: str | None
    private_key_path: str | None
    insecure: bool


async def read_access(load: Credentials) -> ApiServerAccess:
    """Read the current credentials and return them."""
    configuration = type.__call__(transport.Configuration)
    await load(configuration)
    # The kubeconfig loader prefixes "Bearer", the in-cluster loader "bearer"; kopf adds its own prefix.
    token = str(configuration.api_key.get("BearerToken") or "").split(" ")[-1]
    return ApiServerAccess(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        insecure=not configuration.verify_ssl,
    )
