"""Authentication of reports by a ServiceAccount token for our audience, checked by the API server, bound to one pod.

Results are cached, so a worker that reports every second costs one TokenReview a minute. While the API server answers
no reviews, a token that it has accepted before stays believed for some minutes. The cache holds only the SHA-256 of a
token; the operator never logs a token or its claims.
"""

import asyncio
import base64
import binascii
import hashlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from activity_operator.reports.review_health import ReviewHealth
from activity_worker.contract import TOKEN_AUDIENCE

EXTRA_POD_UID = "authentication.kubernetes.io/pod-uid"
EXTRA_POD_NAME = "authentication.kubernetes.io/pod-name"

#: Seconds after which an accepted token is reviewed again, and the same in report intervals: the longer one counts.
#: With 60 s alone, a fleet whose interval is longer would cause a review for each report.
ACCEPTED_SECONDS = 60.0
ACCEPTED_INTERVALS = 2
#: Seconds beyond that for which an accepted token stays believed while reviews fail. A refusal ends this at once.
UNREVIEWED_SECONDS = 300.0
#: Seconds that a report with such a token waits for its review, and seconds until the token's next review. A worker
#: waits 5 s for its reply.
REVIEW_PATIENCE_SECONDS = 2.0
REVIEW_AGAIN_SECONDS = 10.0
#: Seconds for which a refused token is cached.
REFUSED_SECONDS = 10.0
#: Most cached tokens of each kind.
MAX_ACCEPTED = 20_000
MAX_REFUSED = 2_000
#: Most TokenReviews in flight, and most tokens that wait for one: a flood of new tokens must not reach the API server.
MAX_REVIEWS = 8
MAX_WAITING = 2_000
#: Most characters of a token; clusters issue tokens of one or two thousand characters.
MAX_TOKEN_LENGTH = 16_384

#: (token, audience) -> the TokenReview's `status`. May raise any exception if the API server cannot be reached.
Review = Callable[[str, str], Awaitable[Mapping[str, Any]]]

K = TypeVar("K")
V = TypeVar("V")


class RefusedError(Exception):
    """The token is not accepted. The reason goes to the caller, so it has no details."""


class ReviewUnavailableError(Exception):
    """The API server could not check the token; the worker should try again."""


@dataclass(frozen=True, slots=True)
class ReporterIdentity:
    """The pod that a token is bound to."""

    pod_uid: str
    pod_name: str
    namespace: str


@dataclass(frozen=True, slots=True)
class _Accepted:
    """The pod of an accepted token, and the Unix time of its next review."""

    identity: ReporterIdentity
    review_at: float


class _Expiring(Generic[K, V]):
    """A bounded mapping with an expiry time for each entry; when it is full, the oldest entry is dropped.

    Each new entry removes the oldest ones that have expired. Otherwise the tokens of pods that are gone would fill it.
    """

    def __init__(self, limit: int) -> None:
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._limit = limit

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now: float) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        until, value = entry
        if now >= until:
            del self._entries[key]
            return None
        return value

    def put(self, key: K, value: V, until: float, now: float) -> None:
        self._entries.pop(key, None)
        self._entries[key] = (until, value)
        while len(self._entries) > self._limit or next(iter(self._entries.values()))[0] <= now:
            self._entries.popitem(last=False)
            if not self._entries:
                return

    def update(self, key: K, value: V) -> None:
        """Replace the value of a present key, which keeps its expiry time."""
        if (entry := self._entries.get(key)) is not None:
            self._entries[key] = (entry[0], value)

    def drop(self, key: K) -> None:
        self._entries.pop(key, None)


class Authenticator:
    """Identifies pods that report. `now()` is in Unix seconds; `on_problem` is called when a `problem` begins.

    `interval()` is the present report interval in seconds.
    """

    def __init__(
        self,
        review: Review,
        *,
        now: Callable[[], float],
        on_problem: Callable[[], None] = lambda: None,
        interval: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._review = review
        self._now = now
        self._on_problem = on_problem
        self._interval = interval
        self._accepted: _Expiring[bytes, _Accepted] = _Expiring(MAX_ACCEPTED)
        self._refused: _Expiring[bytes, str] = _Expiring(MAX_REFUSED)
        self._asking: dict[bytes, asyncio.Task[ReporterIdentity]] = {}
        self._reviews = asyncio.Semaphore(MAX_REVIEWS)
        self._health = ReviewHealth()

    @property
    def problem(self) -> str:
        """Why reports cannot be authenticated now, "" while they can. Conditions show it."""
        return self._health.problem(self._now())

    async def identify(self, authorization: str) -> ReporterIdentity:
        """Return the pod of an `Authorization` header; raises `RefusedError` or `ReviewUnavailableError`."""
        token = _bearer(authorization)
        digest = hashlib.sha256(token.encode()).digest()
        known = self._accepted.get(digest, self._now())
        if known is None:
            return await self._reviewed(digest, token)
        if self._now() < known.review_at:
            return known.identity
        try:
            async with asyncio.timeout(REVIEW_PATIENCE_SECONDS):
                return await self._reviewed(digest, token)
        except (ReviewUnavailableError, TimeoutError):
            self._accepted.update(digest, replace(known, review_at=self._now() + REVIEW_AGAIN_SECONDS))
            return known.identity

    async def _reviewed(self, digest: bytes, token: str) -> ReporterIdentity:
        """Return the pod by a TokenReview; raises `RefusedError` or `ReviewUnavailableError`."""
        refused = self._refused.get(digest, self._now())
        if refused is not None:
            raise RefusedError(refused)
        expires = _check_claims(token)
        asking = self._asking.get(digest)
        if asking is None:
            if len(self._asking) >= MAX_WAITING:
                raise ReviewUnavailableError("too many tokens wait to be checked")
            asking = asyncio.get_running_loop().create_task(self._ask(digest, token, expires))
            asking.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._asking[digest] = asking
        # Several callers may wait for this review: if one disconnects, the review must go on for the others.
        return await asyncio.shield(asking)

    async def _ask(self, digest: bytes, token: str, expires: float) -> ReporterIdentity:
        try:
            async with self._reviews:
                status = await self._review(token, TOKEN_AUDIENCE)
        except Exception as error:
            if self._health.failed(self._now(), str(error)):
                self._on_problem()
            raise ReviewUnavailableError("the token cannot be checked now") from error
        finally:
            del self._asking[digest]
        now = self._now()
        self._health.answered(now)
        try:
            identity = read_review(status)
        except RefusedError as error:
            self._accepted.drop(digest)
            self._refused.put(digest, str(error), now + REFUSED_SECONDS, now)
            raise
        seconds = max(ACCEPTED_SECONDS, ACCEPTED_INTERVALS * self._interval())
        until = _believed_until(now, expires, seconds + UNREVIEWED_SECONDS)
        self._accepted.put(digest, _Accepted(identity, _believed_until(now, expires, seconds)), until, now)
        return identity


def read_review(status: Mapping[str, Any]) -> ReporterIdentity:
    """Return the pod that a TokenReview's status names; raises `RefusedError`."""
    if status.get("authenticated") is not True:
        raise RefusedError("the token is not valid")
    if TOKEN_AUDIENCE not in (status.get("audiences") or ()):
        raise RefusedError(f"the token is not for audience {TOKEN_AUDIENCE}")
    user = status.get("user") or {}
    parts = str(user.get("username", "")).split(":")
    extra: Mapping[str, Sequence[str]] = user.get("extra") or {}
    uids, names = extra.get(EXTRA_POD_UID, []), extra.get(EXTRA_POD_NAME, [])
    if len(parts) != 4 or parts[:2] != ["system", "serviceaccount"] or len(uids) != 1:
        raise RefusedError("the token is not bound to a pod")
    return ReporterIdentity(pod_uid=str(uids[0]), pod_name=str(names[0]) if names else "", namespace=parts[2])


def _bearer(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise RefusedError("a bearer token is missing")
    if len(token) > MAX_TOKEN_LENGTH or not token.isascii():
        raise RefusedError("the token is not valid")
    return token


def _check_claims(token: str) -> float:
    """Return the token's own expiry time (Unix seconds); refuse a malformed token without a TokenReview.

    The claims are not verified here. They can only save a TokenReview or shorten the cache time. A token that seems to
    have expired still gets a TokenReview, because our own clock may be wrong.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise RefusedError("the token is not valid")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        audiences, expires = claims["aud"], float(claims["exp"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError, binascii.Error):
        raise RefusedError("the token is not valid") from None
    if TOKEN_AUDIENCE not in (audiences if isinstance(audiences, list) else [audiences]):
        raise RefusedError(f"the token is not for audience {TOKEN_AUDIENCE}")
    return expires


def _believed_until(now: float, expires: float, seconds: float) -> float:
    """Return the Unix time until which a token that the API server has just accepted is believed: `seconds` at most.

    If the token seems to have expired, the clocks differ and its expiry time is ignored.
    """
    longest = now + seconds
    return longest if expires <= now else min(longest, expires)
