"""Credentials from botocore's chain, or usual ones without it: found off the event loop, once for many callers.

The chain is botocore's own: environment, profile, IRSA web identity, Pod Identity and other container endpoints,
instance metadata; then, if asked, an assumed role. All of it blocks (files, HTTP), so it runs in a thread; callers of
the same moment share one run. Credentials near their end are renewed in the background while they still work.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

from activity_worker.wire.errors import CredentialsMissingError, EndpointUnreachableError, WireError
from activity_worker.wire.session import create_client
from activity_worker.wire.signing import Keys
from activity_worker.wire.temporary_keys import TemporaryKeys

#: How often the age of credentials in use is looked at.
_LOOK_EVERY_SECONDS = 10.0
#: botocore starts to renew this long before the end (its advisory period) ...
_RENEW_BEFORE_SECONDS = 900
#: ... and inside this one the old ones are not used any more: calls wait for the new ones.
_WAIT_BEFORE_SECONDS = 60
#: Refused credentials are thrown away at most this often, so that a wrong key does not become a storm of look-ups.
_FORGET_EVERY_SECONDS = 30.0
_ROLE_SESSION_NAME = "activitypool"


class CredentialsProvider:
    """Holds the credentials in use and knows when to ask for new ones.

    `load` resolves the chain and returns botocore credentials or None; it may block and runs in a thread.
    """

    def __init__(self, load: Callable[[], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._load = load
        self._clock = clock
        self._found: Any = None
        self._keys: Keys | None = None
        self._look_at = 0.0
        self._forgotten_at = -_FORGET_EVERY_SECONDS
        self._renewal: asyncio.Task[Keys] | None = None

    async def keys(self) -> Keys:
        """Return keys to sign with, renewing them first when they are missing or about to end.

        Raises CredentialsMissingError when there are none, EndpointUnreachableError when the place they come from gives
        no answer.
        """
        keys = self._keys
        if keys is not None and self._clock() < self._look_at:
            return keys
        if keys is None or _ends_within(self._found, _WAIT_BEFORE_SECONDS):
            return await asyncio.shield(self._renew())
        if _ends_within(self._found, _RENEW_BEFORE_SECONDS):
            self._renew()
        self._look_at = self._clock() + _LOOK_EVERY_SECONDS
        return keys

    def forget(self) -> None:
        """Resolve the chain again at the next call: the service refused these credentials."""
        if self._clock() - self._forgotten_at >= _FORGET_EVERY_SECONDS:
            self._forgotten_at = self._clock()
            self._found = self._keys = None

    async def close(self) -> None:
        """Wait for a renewal that is under way; a thread cannot be stopped."""
        if self._renewal is not None:
            await asyncio.wait([self._renewal])

    def _renew(self) -> "asyncio.Task[Keys]":
        if self._renewal is None:
            self._renewal = asyncio.get_running_loop().create_task(self._resolve())
            self._renewal.add_done_callback(self._renewed)
        return self._renewal

    def _renewed(self, task: "asyncio.Task[Keys]") -> None:
        self._renewal = None
        if not task.cancelled():
            task.exception()  # seen here, so that a background renewal that failed is not reported as forgotten

    async def _resolve(self) -> Keys:
        self._found, keys = await asyncio.to_thread(_resolve, self._load, self._found)
        self._keys = keys
        self._look_at = self._clock() + _LOOK_EVERY_SECONDS
        return keys


def chain(session: Any, *, region: str, role_arn: str | None, external_id: str | None) -> Callable[[], Any]:
    """Return a function that resolves `session`'s credentials chain and, with `role_arn`, assumes that role."""

    def load() -> Any:
        found = session.get_component("credential_provider").load_credentials()
        return found if found is None or role_arn is None else assumed(found)

    def assumed(source: Any) -> Any:
        from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials  # noqa: PLC0415

        extra = {"RoleSessionName": _ROLE_SESSION_NAME} | ({"ExternalId": external_id} if external_id else {})
        fetcher = AssumeRoleCredentialFetcher(client, source, cast("str", role_arn), extra_args=extra)
        return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")

    def client(service: str, **keys: str) -> Any:
        return create_client(session, service, region, **keys)

    return load


def _resolve(load: Callable[[], Any], found: Any) -> tuple[Any, Keys]:
    try:
        if isinstance(found, TemporaryKeys) and found.refresh_needed(_RENEW_BEFORE_SECONDS):
            found = None
        found = found or load()
        frozen = found and found.get_frozen_credentials()
    except Exception as error:
        told = _in_our_words(error)
        if told is None:
            raise
        raise told from error
    if not frozen or not frozen.access_key:
        raise CredentialsMissingError(
            "NoCredentials",
            "none in the environment, a profile, a web identity token, a container endpoint or instance metadata; "
            "give the pod's ServiceAccount a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    return found, Keys(frozen.access_key, frozen.secret_key, frozen.token)


def _in_our_words(error: Exception) -> WireError | None:
    """Return what an error of botocore's chain means for a caller; None for one that is a bug."""
    # Imported here: static keys come without botocore.
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError  # noqa: PLC0415
    from botocore.exceptions import ConnectionError as BotocoreConnectionError  # noqa: PLC0415

    if isinstance(error, ClientError):
        return _refused(error)
    if isinstance(error, (HTTPClientError, BotocoreConnectionError)):
        return EndpointUnreachableError("EndpointUnreachable", f"while looking for credentials: {error}")
    if isinstance(error, (BotoCoreError, RuntimeError, OSError, ValueError)):
        return CredentialsMissingError("NoCredentials", f"{error}; mend what is named or set other credentials")
    return None


def _refused(error: Any) -> WireError:
    """Turn the refusal of the security token service into ours: transient ones stay so, the rest are missing rights."""
    details = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    plain = WireError(
        details.get("Code", "NoCredentials"), f"while assuming a role: {details.get('Message', error)}", status
    )
    return plain if plain.retryable else CredentialsMissingError(plain.code, plain.message, plain.status)


def _ends_within(found: Any, seconds: int) -> bool:
    """Whether temporary credentials end within `seconds`; static ones never do."""
    refresh_needed = getattr(found, "refresh_needed", None)
    return refresh_needed is not None and bool(refresh_needed(seconds))
