"""Authentication of reports, and the cost of a flood of tokens."""

import asyncio
import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from activity_operator.reports.authentication import (
    ACCEPTED_SECONDS,
    EXTRA_POD_NAME,
    EXTRA_POD_UID,
    MAX_REVIEWS,
    REFUSED_SECONDS,
    REVIEW_PATIENCE_SECONDS,
    UNREVIEWED_SECONDS,
    Authenticator,
    RefusedError,
    ReviewUnavailableError,
)
from activity_worker.contract import TOKEN_AUDIENCE
from tests.unit.activity_operator.virtual_time import settle, wall


def token(subject: str = "a", audience: Any = TOKEN_AUDIENCE, expires_in: float = 3600.0) -> str:
    claims = {"aud": audience, "exp": wall() + expires_in, "sub": subject}
    middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{middle}.c2ln"


def bearer(subject: str = "a", **claims: Any) -> str:
    return "Bearer " + token(subject, **claims)


def accepted(**user: Any) -> dict[str, Any]:
    extra = {EXTRA_POD_UID: ["uid-a"], EXTRA_POD_NAME: ["resize-a"]}
    whole = {"username": "system:serviceaccount:media:default", "extra": extra} | user
    return {"authenticated": True, "audiences": [TOKEN_AUDIENCE], "user": whole}


class Reviews:
    """Answers TokenReviews after `takes` seconds and counts them."""

    def __init__(self) -> None:
        self.status: Mapping[str, Any] = accepted()
        self.asked: list[str] = []
        self.takes = 0.05
        self.at_once = self.most_at_once = 0
        self.down = False

    async def __call__(self, token: str, audience: str) -> Mapping[str, Any]:
        assert audience == TOKEN_AUDIENCE
        self.asked.append(token)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.takes)
        self.at_once -= 1
        if self.down:
            raise ConnectionError("no answer")
        return self.status


@pytest.fixture
def reviews() -> Reviews:
    return Reviews()


@pytest.fixture
def authenticator(reviews: Reviews) -> Authenticator:
    return Authenticator(reviews, now=wall)


async def test_token_identifies_the_pod_that_it_is_bound_to(authenticator: Authenticator) -> None:
    identity = await authenticator.identify(bearer())

    assert (identity.pod_uid, identity.pod_name, identity.namespace) == ("uid-a", "resize-a", "media")


async def test_accepted_token_is_reviewed_once_a_minute(authenticator: Authenticator, reviews: Reviews) -> None:
    header = bearer()
    for _ in range(180):
        await authenticator.identify(header)
        await asyncio.sleep(1.0)

    assert len(reviews.asked) == 3


async def test_token_is_believed_for_two_report_intervals_of_a_large_fleet(reviews: Reviews) -> None:
    checking = Authenticator(reviews, now=wall, interval=lambda: 100.0)
    header = bearer()
    for _ in range(10):
        await checking.identify(header)
        await asyncio.sleep(100.0)

    assert len(reviews.asked) == 5


async def test_accepted_token_is_refused_after_its_expiry(authenticator: Authenticator, reviews: Reviews) -> None:
    header = bearer(expires_in=5.0)
    await authenticator.identify(header)
    reviews.status = {"authenticated": False}
    await asyncio.sleep(6.0)

    with pytest.raises(RefusedError):
        await authenticator.identify(header)


async def test_token_expired_only_by_the_operators_clock_is_accepted(
    authenticator: Authenticator, reviews: Reviews
) -> None:
    """The API server's clock decides; with an operator's clock an hour ahead, no worker could report otherwise."""
    header = bearer(expires_in=-600.0)
    for _ in range(50):
        assert (await authenticator.identify(header)).pod_name == "resize-a"
        await asyncio.sleep(1.0)

    assert len(reviews.asked) == 1


async def test_concurrent_reports_with_a_new_token_cause_one_review(
    authenticator: Authenticator, reviews: Reviews
) -> None:
    header = bearer()
    await asyncio.gather(*(authenticator.identify(header) for _ in range(100)))

    assert len(reviews.asked) == 1


async def test_cancelled_caller_does_not_cancel_the_shared_review(
    authenticator: Authenticator, reviews: Reviews
) -> None:
    header = bearer()
    first = asyncio.create_task(authenticator.identify(header))
    second = asyncio.create_task(authenticator.identify(header))
    await settle()
    first.cancel()

    assert (await second).pod_uid == "uid-a"


async def test_refused_token_is_reviewed_again_after_ten_seconds(
    authenticator: Authenticator, reviews: Reviews
) -> None:
    reviews.status = {"authenticated": False, "error": "token has been invalidated"}
    header = bearer()
    for _ in range(5):
        with pytest.raises(RefusedError, match=r"^the token is not valid$"):
            await authenticator.identify(header)
    assert len(reviews.asked) == 1

    await asyncio.sleep(11.0)
    reviews.status = accepted()
    assert (await authenticator.identify(header)).pod_uid == "uid-a"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({}, "not valid"),
        ({"authenticated": "true"}, "not valid"),
        (accepted() | {"audiences": ["https://kubernetes.default.svc"]}, "not for audience"),
        (accepted() | {"audiences": None}, "not for audience"),
        (accepted(extra={}), "not bound to a pod"),
        (accepted(extra={EXTRA_POD_UID: []}), "not bound to a pod"),
        (accepted(username="alice"), "not bound to a pod"),
        (accepted(username="system:node:one:two"), "not bound to a pod"),
    ],
)
async def test_review_that_proves_no_pod_is_a_refusal(
    authenticator: Authenticator, reviews: Reviews, status: Mapping[str, Any], reason: str
) -> None:
    reviews.status = status
    with pytest.raises(RefusedError, match=reason):
        await authenticator.identify(bearer())


async def test_malformed_token_is_refused_without_a_review(authenticator: Authenticator, reviews: Reviews) -> None:
    headers = [
        "",
        "Basic dXNlcjpwYXNz",
        "Bearer",
        "Bearer ",
        "Bearer nonsense",
        "Bearer a.b.c",
        "Bearer e30.e30.c2ln",
        "Bearer " + "x" * 20_000,
        "Bearer é.é.é",
        bearer(audience="https://kubernetes.default.svc"),
    ]
    for header in headers:
        with pytest.raises(RefusedError):
            await authenticator.identify(header)

    assert reviews.asked == []


async def test_refusal_does_not_repeat_the_token(authenticator: Authenticator, reviews: Reviews) -> None:
    reviews.status = {}
    header = bearer("secret")
    with pytest.raises(RefusedError) as raised:
        await authenticator.identify(header)

    assert header.split()[1] not in repr(raised.value)


async def test_unanswered_reviews_are_a_problem_until_they_are_answered(reviews: Reviews) -> None:
    begun: list[str] = []
    checking = Authenticator(reviews, now=wall, on_problem=lambda: begun.append(checking.problem))
    reviews.down = True
    for second in range(15):
        with pytest.raises(ReviewUnavailableError):
            await checking.identify(bearer("a"))
        assert bool(checking.problem) == (second >= 10)
        await asyncio.sleep(1.0)
    reviews.down = False
    await checking.identify(bearer("a"))
    assert checking.problem
    await asyncio.sleep(10.0)

    assert begun == ["the API server does not answer TokenReviews: no answer"]
    assert checking.problem == ""


async def test_accepted_token_is_believed_while_reviews_fail(authenticator: Authenticator, reviews: Reviews) -> None:
    header = bearer()
    await authenticator.identify(header)
    reviews.down = True
    for _ in range(350):
        assert (await authenticator.identify(header)).pod_uid == "uid-a"
        await asyncio.sleep(1.0)
    assert len(reviews.asked) == 1 + 29, "the first, and one every ten seconds"

    await asyncio.sleep(20.0)
    with pytest.raises(ReviewUnavailableError):
        await authenticator.identify(header)


async def test_hanging_review_delays_a_known_worker_for_two_seconds(
    authenticator: Authenticator, reviews: Reviews
) -> None:
    """A worker waits five seconds for its reply."""
    header = bearer()
    await authenticator.identify(header)
    await asyncio.sleep(61.0)
    reviews.takes = 30.0
    began = wall()
    for _ in range(5):
        assert (await authenticator.identify(header)).pod_uid == "uid-a"

    assert wall() - began == REVIEW_PATIENCE_SECONDS


async def test_refusal_ends_the_belief_in_an_accepted_token(authenticator: Authenticator, reviews: Reviews) -> None:
    header = bearer()
    await authenticator.identify(header)
    await asyncio.sleep(61.0)
    reviews.down = True
    await authenticator.identify(header)
    reviews.down, reviews.status = False, {"authenticated": False}
    await asyncio.sleep(11.0)
    with pytest.raises(RefusedError):
        await authenticator.identify(header)
    reviews.down = True
    await asyncio.sleep(11.0)

    with pytest.raises(ReviewUnavailableError):
        await authenticator.identify(header)


async def test_token_is_not_believed_beyond_its_expiry(authenticator: Authenticator, reviews: Reviews) -> None:
    header = bearer(expires_in=120.0)
    await authenticator.identify(header)
    reviews.down = True
    await asyncio.sleep(119.0)
    assert (await authenticator.identify(header)).pod_uid == "uid-a"
    await asyncio.sleep(2.0)

    with pytest.raises(ReviewUnavailableError):
        await authenticator.identify(header)


async def test_flood_of_different_tokens_is_bounded(authenticator: Authenticator, reviews: Reviews) -> None:
    reviews.status = {}
    answers = await asyncio.gather(
        *(authenticator.identify(bearer(str(number))) for number in range(5000)), return_exceptions=True
    )

    assert reviews.most_at_once == MAX_REVIEWS
    assert len(reviews.asked) == 2000
    assert sum(isinstance(answer, ReviewUnavailableError) for answer in answers) == 3000
    assert 0 < len(authenticator._refused) <= 2000


async def test_tokens_of_pods_that_are_gone_are_forgotten(authenticator: Authenticator, reviews: Reviews) -> None:
    """Pods come and go, each with a token of its own. Only the tokens that are still believed stay in memory."""
    lasts = ACCEPTED_SECONDS + UNREVIEWED_SECONDS
    kept = []
    for number in range(400):
        await authenticator.identify(bearer(f"pod-{number}"))
        reviews.status = {"authenticated": False}
        with pytest.raises(RefusedError):
            await authenticator.identify(bearer(f"stranger-{number}"))
        reviews.status = accepted()
        await asyncio.sleep(10.0)
        kept.append((len(authenticator._accepted), len(authenticator._refused)))

    assert max(accepted for accepted, _ in kept) <= lasts / 10.0 + 1
    assert max(refused for _, refused in kept) <= REFUSED_SECONDS / 10.0 + 1
