"""PURE: the signature of a call, an HMAC-SHA256 over its path and the bytes of its request."""

import hashlib
import hmac
import json
from collections.abc import Iterable, Sequence
from typing import Final

#: The metadata key that carries the signature.
METADATA_KEY: Final = "sentry-signature"


class SecretsError(ValueError):
    """The text is not a JSON list of secrets; the message does not repeat it."""


def sign(secret: str, path: str, body: bytes) -> str:
    """Return the signature in hexadecimal. `path` is the gRPC path, such as `/package.Service/Call`."""
    return hmac.new(secret.encode(), path.encode() + b":" + body, hashlib.sha256).hexdigest()


def is_signed(secrets: Sequence[str], path: str, body: bytes, signature: str) -> bool:
    """Return whether any of the secrets made the signature. Takes as long for a wrong one as for a right one."""
    given = signature.encode()
    # Every secret is tried, so the time tells nothing about which one fits.
    fitting = [secret for secret in secrets if hmac.compare_digest(sign(secret, path, body).encode(), given)]
    return bool(fitting)


def is_call_signed(secrets: Sequence[str], path: str, body: bytes, metadata: Iterable[tuple[str, str | bytes]]) -> bool:
    """Return whether a call's metadata have exactly one signature, and it is right. Without secrets every call is."""
    if not secrets:
        return True
    given = [value for key, value in metadata if key == METADATA_KEY]
    return len(given) == 1 and is_signed(secrets, path, body, str(given[0]))


def read_secrets(text: str) -> tuple[str, ...]:
    """Return the secrets of a JSON list such as `["new", "old"]`: the first signs, any of them verifies.

    An empty text is no secrets. Raises SecretsError.
    """
    if not text.strip():
        return ()
    try:
        found = json.loads(text)
    except ValueError:
        raise SecretsError('expected a JSON list of secrets, such as ["new", "old"]') from None
    if not isinstance(found, list) or not found or not all(isinstance(one, str) and one for one in found):
        raise SecretsError('expected a JSON list of one or more texts that are not empty, such as ["new", "old"]')
    return tuple(found)
