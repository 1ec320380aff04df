"""Values of Secrets that pools name: read when they are first needed, and again when they are doubted or missing.

The operator has no right to list or watch Secrets outside its own namespace, so a change is found by asking: every few
minutes, at once when what a value leads to fails, and then again and again until it does not.
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

from activity_operator.api.conditions import Reason
from activity_operator.cluster.backoff import retry_delay
from activity_operator.cluster.kube import ApiError, KubeError
from activity_operator.cluster.resources import Key, Raw

log = logging.getLogger(__name__)

#: From one reading of a value that nobody doubts to the next.
REFRESH_SECONDS = 300.0
#: The least time between two readings, and the most while a value is missing or doubted.
LEAST_SECONDS = 1.0
DOUBTED_SECONDS = 30.0


#: A pool, and what it uses a value for.
User = tuple[Key, str]


@dataclass(frozen=True, slots=True)
class SecretRef:
    """A key of a Secret in a namespace."""

    namespace: str
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class SecretValue:
    """What was found: a value, or why there is none (a condition's reason, and a message that names the fix)."""

    value: str = field(default="", repr=False)
    reason: str = ""
    message: str = ""


@dataclass(slots=True)
class _WatchedSecret:
    """One value, who uses it for what, and who of them is failed by it. `asked` is set when it is to be read soon."""

    ref: SecretRef
    users: set[User] = field(default_factory=set)
    found: SecretValue | None = None
    doubts: set[User] = field(default_factory=set)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    misses: int = 0
    task: asyncio.Task[None] | None = None


class SecretValues:
    """The values for all pools. `get(namespace, name)` reads a Secret; `on_change(key)` tells that one changed."""

    def __init__(
        self,
        get: Callable[[str, str], Awaitable[Raw]],
        *,
        on_change: Callable[[Key], None],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._get = get
        self._on_change = on_change
        self._jitter = jitter
        self._watches: dict[SecretRef, _WatchedSecret] = {}
        self._refs: dict[User, SecretRef] = {}

    def follow(self, key: Key, use: str, ref: SecretRef | None) -> SecretValue | None:
        """Keep this value for this use of the pool's, or with None none; returns it, None before it has been read."""
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

    def doubt(self, key: Key, use: str) -> None:
        """Read the value again soon, and ever more rarely until it is trusted: what it leads to fails."""
        if (ref := self._refs.get((key, use))) is not None:
            watched = self._watches[ref]
            if not watched.doubts:
                watched.asked.set()
            watched.doubts.add((key, use))

    def trust(self, key: Key, use: str) -> None:
        """What the value leads to is well."""
        if (ref := self._refs.get((key, use))) is not None:
            self._watches[ref].doubts.discard((key, use))

    def pause(self) -> None:
        """Keep nothing."""
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
                # Who doubted the former value has yet to try this one.
                watched.found, watched.misses = found, 0
                watched.doubts.clear()
                for key in {key for key, _ in watched.users}:
                    self._on_change(key)
            wait = REFRESH_SECONDS * (0.8 + 0.2 * self._jitter())
            if watched.found is None or watched.found.reason or watched.doubts:
                watched.misses += 1
                wait = min(retry_delay(watched.misses, self._jitter()), DOUBTED_SECONDS)
            else:
                watched.misses = 0
            await asyncio.sleep(LEAST_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(wait - LEAST_SECONDS, 0.0)):
                    await watched.asked.wait()
            watched.asked.clear()

    async def _read(self, watched: _WatchedSecret) -> SecretValue | None:
        """Return what is there now; None when the API server cannot say, so that what is known stays."""
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
