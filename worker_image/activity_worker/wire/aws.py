"""One signed call to an AWS service that speaks JSON: credentials, signature, transport and errors joined.

A call is made once: the caller knows better whether and when to try again. The one exception is a wrong clock: a
request refused for its date was not acted on, so it is sent again with the service's own time, once.
"""

import json
import os
import time
from collections.abc import Callable
from typing import Any, Self, cast

from activity_worker.wire.credentials import CredentialsProvider, chain
from activity_worker.wire.endpoint import resolve
from activity_worker.wire.errors import SKEWED, SPENT_CREDENTIALS, WireError
from activity_worker.wire.http_response import HttpResponse
from activity_worker.wire.plain_environment import AwsEndpoint, environment_keys, plain_endpoint
from activity_worker.wire.session import new_session
from activity_worker.wire.signing import Signer
from activity_worker.wire.transport import Transport

#: Services allow five minutes; a smaller difference is not why a signature was refused.
_SKEW_SECONDS = 240.0
_MAX_MESSAGE_LENGTH = 1024
#: Variables that EKS sets in a pod with a role.
_ROLE_VARIABLES = frozenset({"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"})
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode


class AwsJsonCaller:
    """Calls operations of one service at one endpoint with one set of credentials.

    `target_prefix` and `json_version` are the service model's. `now` returns Unix time in seconds.
    """

    def __init__(
        self,
        endpoint: AwsEndpoint,
        credentials: CredentialsProvider,
        *,
        target_prefix: str,
        json_version: str = "1.0",
        now: Callable[[], float] = time.time,
    ) -> None:
        self.endpoint = endpoint
        self._credentials = credentials
        self._prefix = target_prefix
        self._transport = Transport(endpoint.url, ca_bundle=endpoint.ca_bundle)
        self._signer = Signer(
            service=endpoint.signing_name,
            region=endpoint.region,
            url=endpoint.url,
            content_type=f"application/x-amz-json-{json_version}",
        )
        self._now = now
        self._offset_seconds = 0.0

    @classmethod
    def open(
        cls,
        service: str,
        *,
        target_prefix: str,
        region: str | None = None,
        endpoint_url: str | None = None,
        profile: str | None = None,
        role_arn: str | None = None,
        external_id: str | None = None,
        session: Any = None,
    ) -> Self:
        """Return a caller of `service` (botocore's name); no connection is made and no credentials are looked up.

        What is not given comes from the environment or the profile as in every AWS SDK. `role_arn` is assumed (with
        `external_id`) by whatever credentials the chain finds. `session` is a botocore session to use instead of a new
        one. Blocks for about 0.1 s where `plain_environment` cannot say the endpoint.
        """
        plain = session is None and profile is None
        endpoint = plain_endpoint(service, region=region, endpoint_url=endpoint_url) if plain else None
        if endpoint is None:
            # A session keeps every model that it has loaded (8 MB here): what only names the endpoint has its own.
            endpoint = resolve(session or new_session(profile), service, region=region, endpoint_url=endpoint_url)
        where = endpoint.region

        def load() -> Any:
            found = _plain_keys(where) if plain and role_arn is None else None
            return (
                found
                or chain(session or new_session(profile), region=where, role_arn=role_arn, external_id=external_id)()
            )

        return cls(endpoint, CredentialsProvider(load), target_prefix=target_prefix)

    async def call(
        self, operation: str, parameters: dict[str, Any], *, timeout_seconds: float, private: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Return the operation's output.

        `private` names the parameters whose values are struck out of the service's messages. Raises WireError, or a
        subclass of it when there was no answer or nothing to sign with.
        """
        hidden = [str(parameters[name]) for name in private if parameters.get(name)]
        body = _encode(parameters).encode("utf-8", "replace")
        signed_with = self._offset_seconds
        answer = await self._send(operation, body, timeout_seconds)
        if answer.status == 200:
            return _decoded(answer)
        error = _error(answer, hidden)
        if error.code in SKEWED and self._correct_clock(answer.header("date"), signed_with):
            answer = await self._send(operation, body, timeout_seconds)
            if answer.status == 200:
                return _decoded(answer)
            error = _error(answer, hidden)
        if error.code in SPENT_CREDENTIALS:
            self._credentials.forget()
        raise error

    async def close(self) -> None:
        """Close the connections; requests under way fail."""
        await self._transport.close()
        await self._credentials.close()

    async def _send(self, operation: str, body: bytes, timeout_seconds: float) -> HttpResponse:
        keys = await self._credentials.keys()
        headers = self._signer.headers(keys, f"{self._prefix}.{operation}", body, self._now() + self._offset_seconds)
        return await self._transport.post(headers, body, timeout_seconds=timeout_seconds)

    def _correct_clock(self, date: str, signed_with: float) -> bool:
        """Take the service's time from its Date header; return whether another try is worth it.

        `signed_with` is the offset of the refused call: another call may have corrected ours meanwhile.
        """
        from email.utils import parsedate_to_datetime  # noqa: PLC0415 - 4 ms of the start of each worker

        try:
            offset = parsedate_to_datetime(date).timestamp() - self._now()
        except ValueError:
            return False
        if abs(offset - signed_with) < _SKEW_SECONDS:
            return False
        self._offset_seconds = offset
        return True


def _decoded(answer: HttpResponse) -> dict[str, Any]:
    try:
        output = json.loads(answer.body) if answer.body else {}
    except ValueError:
        output = None
    if not isinstance(output, dict):
        raise WireError(
            "NotAnAnswer", "the endpoint answered 200 with something that is not a JSON object; is its URL right?", 502
        )
    return cast("dict[str, Any]", output)


def _error(answer: HttpResponse, hidden: list[str]) -> WireError:
    """Read the service's error. Its code comes with or without a namespace before it and a URL behind it."""
    try:
        document = json.loads(answer.body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        document = {}
    code = answer.header("x-amzn-errortype") or str(document.get("__type") or document.get("code") or "")
    code = code.rsplit("#", 1)[-1].split(":", 1)[0]
    message = str(document.get("message") or document.get("Message") or f"HTTP status {answer.status}")
    for value in hidden:
        message = message.replace(value, "...")
    request_id = answer.header("x-amzn-requestid")
    request = f" (request {request_id})" if request_id else ""
    return WireError(code or f"HTTP{answer.status}", f"{message[:_MAX_MESSAGE_LENGTH]}{request}", answer.status)


def _plain_keys(region: str) -> Any:
    """Return the keys of the environment or of the pod's role; None where only botocore can find keys."""
    found = environment_keys()
    if found is None and os.environ.keys() & _ROLE_VARIABLES:
        from activity_worker.wire.role_keys import role_keys  # noqa: PLC0415 - XML and HTTP, for roles only

        return role_keys(region)
    return found
