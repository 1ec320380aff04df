"""Back-off, rivals, what the API server is told: small, but each with a promise."""

from unittest.mock import AsyncMock

import pytest

from activity_operator.cluster import backoff
from activity_operator.cluster.kinds import PODS, Key
from activity_operator.cluster.kube import WRITE_TIMEOUT_SECONDS, ApiUnreachableError, KubeClient
from activity_operator.cluster.rivals import Rivals

A, B = ("ns", "a"), ("ns", "b")


def test_waits_grow_to_a_cap_and_differ() -> None:
    assert [backoff.delay(failures, 0.0) for failures in (1, 2, 3)] == [0.5, 1.0, 2.0]
    assert backoff.delay(50, 0.0) == 60.0
    assert backoff.delay(50, 0.999) < 31.0


def test_a_conflict_is_tried_again_almost_at_once() -> None:
    assert backoff.delay(1, 0.0, conflict=True) == 0.1


def test_rivals_are_told_of_each_other_when_they_come_and_go() -> None:
    changed: list[Key] = []
    rivals = Rivals(changed.append)

    assert rivals.of(A, "arn") == ()
    assert rivals.of(B, "arn") == ("ns/a",)
    assert changed == [A]
    assert rivals.of(A, "arn") == ("ns/b",)
    rivals.forget(B)
    assert changed == [A, A]
    assert rivals.of(A, "arn") == ()


async def test_a_token_review_asks_whether_the_token_is_for_our_audience() -> None:
    kube = KubeClient(None)
    kube._call = AsyncMock(return_value={"status": {"authenticated": True}})  # type: ignore[method-assign]

    assert await kube.create_token_review("a token", "activitypools.dev/operator") == {"authenticated": True}
    asked = kube._call.call_args.kwargs["body"]["spec"]
    assert asked == {"token": "a token", "audiences": ["activitypools.dev/operator"]}


@pytest.mark.parametrize(("given", "told"), [(None, f"{WRITE_TIMEOUT_SECONDS:.0f}s"), (2.5, "2s"), (0.2, "1s")])
async def test_a_write_tells_the_server_when_its_sender_gives_up(given: float | None, told: str) -> None:
    """One that waits in the server for longer would take effect when its sender may have lost the Lease."""

    class Transport:
        configuration = AsyncMock(api_key={})
        param_serialize = AsyncMock(side_effect=ConnectionError)

    kube = KubeClient(Transport())
    with pytest.raises(ApiUnreachableError):
        await kube.replace(PODS, "ns", "p", {}, given)

    assert ("timeout", told) in Transport.param_serialize.call_args.kwargs["query_params"]
