"""Values of Secrets that pools refer to: read when first needed, and again at intervals.

The operator has no right to list or watch Secrets outside its own namespace, so it finds changes by reading: every few
minutes, and at once when a value is doubted, that is when the source that needs it fails; then with back-off until the
source works.
"""

import asyncio
import base64
import binascii
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

from activity_operator import backoff
from activity_operator.api.conditions import Reason
from activity_operator.cluster.kube import ApiError, KubeError
from activity_operator.cluster.resources import Key, Raw

log = logging.getLogger(__name__)

#: Seconds between two reads of a trusted value.
REFRESH_SECONDS = 300.0
#: Minimum seconds between two reads; first and longest wait while a value is missing or doubted.
LEAST_SECONDS = 1.0
DOUBTED_FIRST_SECONDS = 0.5
DOUBTED_SECONDS = 30.0


#: A pool, and its use of a value ("source", "prometheus").
User = tuple[Key, str]


@dataclass(frozen=True, slots=True)
class SecretRef:
    """Namespace and name of a Secret, and a key in it."""

    namespace: str
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class SecretValue:
    """A value, or why there is none: a condition's reason, and a message that names the fix."""

    value: str = field(default="", repr=False)
    reason: str = ""
    message: str = ""


@dataclass(slots=True)
class _WatchedSecret:
    """One value with its users. `doubts` are the users whose source fails; `asked` is set to request a read."""

    ref: SecretRef
    users: set[User] = field(default_factory=set)
    found: SecretValue | None = None
    doubts: set[User] = field(default_factory=set)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    misses: int = 0
    task: asyncio.Task[None] | None = None


class SecretValues:
    """The values for all pools. `get(namespace, name)` reads a Secret; `on_change(key)` follows a changed value."""

    def __init__(
        self,
        get: Callable[[str, str], Awaitable[Raw]],
        *,
        on_change: Callable[[Key], None],
        jitter: backoff.Jitter = random.random,
    ) -> None:
        self._get = get
        self._on_change = on_change
        self._jitter = jitter
        self._watches: dict[SecretRef, _WatchedSecret] = {}
        self._refs: dict[User, SecretRef] = {}

    def follow(self, key: Key, use: str, ref: SecretRef | None) -> SecretValue | None:
        """Keep the value for this use, or drop it if `ref` is None; return the value, None before its first read."""
        user = (key, use)
        before = self._refs.get(user)
        if before is not None and before != ref:
            self._leave(user, before)
        if ref is None:
            return None
        watched = self._watches.get(ref)
        if watched is None:
            watched = self._watches[ref] = _WatchedSecret(ref)
            watched.task = asyncio.get_running_loop().create_task(self._run(watched))
        watched.users.add(user)
        self._refs[user] = ref
        return watched.found

    def source_failed(self, key: Key, use: str) -> None:
        """Read the value again soon, then with back-off until it is trusted, because the pool's source fails."""
        if (ref := self._refs.get((key, use))) is not None:
            watched = self._watches[ref]
            if not watched.doubts:
                watched.asked.set()
            watched.doubts.add((key, use))

    def source_works(self, key: Key, use: str) -> None:
        """Withdraw the doubt, because the pool's source works."""
        if (ref := self._refs.get((key, use))) is not None:
            self._watches[ref].doubts.discard((key, use))

    def pause(self) -> None:
        """Drop all values."""
        for key, use in tuple(self._refs):
            self.follow(key, use, None)

    def _leave(self, user: User, ref: SecretRef) -> None:
        del self._refs[user]
        watched = self._watches[ref]
        watched.users.discard(user)
        watched.doubts.discard(user)
        if not watched.users:
            del self._watches[ref]
            if watched.task is not None:
                watched.task.cancel()

    async def _run(self, watched: _WatchedSecret) -> None:
        while True:
            found = await self._read(watched)
            if found is not None and found != watched.found:
                # The doubts were about the former value.
                watched.found, watched.misses = found, 0
                watched.doubts.clear()
                for key in {key for key, _ in watched.users}:
                    self._on_change(key)
            wait = REFRESH_SECONDS * (0.8 + 0.2 * self._jitter())
            if watched.found is None or watched.found.reason or watched.doubts:
                watched.misses += 1
                wait = backoff.capped(watched.misses, DOUBTED_FIRST_SECONDS, DOUBTED_SECONDS, self._jitter)
            else:
                watched.misses = 0
            await asyncio.sleep(LEAST_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(wait - LEAST_SECONDS, 0.0)):
                    await watched.asked.wait()
            watched.asked.clear()

    async def _read(self, watched: _WatchedSecret) -> SecretValue | None:
        """Return the current value; None if the API server does not answer, so that the last value stays."""
        ref = watched.ref
        secret = f"Secret {ref.name} in namespace {ref.namespace}"
        try:
            raw = await self._get(ref.namespace, ref.name)
        except KubeError as error:
            if isinstance(error, ApiError) and error.missing:
                return SecretValue(reason=Reason.SECRET_NOT_FOUND, message=f"{secret} does not exist: create it")
            if isinstance(error, ApiError) and error.status == HTTPStatus.FORBIDDEN:
                text = (
                    f"the operator may not read {secret}: add the namespace to the chart's secretNamespaces, or "
                    "bind a Role with get on this Secret to the operator's ServiceAccount"
                )
                return SecretValue(reason=Reason.SECRET_FORBIDDEN, message=text)
            log.warning("%s cannot be read now: %s", secret, error)
            return None
        except Exception:
            log.exception("%s: reading it failed unexpectedly", secret)
            return None
        encoded = (raw.get("data") or {}).get(ref.key)
        if encoded is None:
            return SecretValue(reason=Reason.SECRET_NOT_FOUND, message=f"{secret} has no key {ref.key}: add it")
        try:
            text = base64.b64decode(encoded, validate=True).decode().strip()
        except (binascii.Error, ValueError):
            return SecretValue(reason=Reason.SECRET_UNUSABLE, message=f"key {ref.key} of {secret} is no text")
        if not text:
            return SecretValue(reason=Reason.SECRET_UNUSABLE, message=f"key {ref.key} of {secret} is empty: fill it")
        return SecretValue(text)
