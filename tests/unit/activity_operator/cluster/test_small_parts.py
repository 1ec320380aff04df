"""Pools that share a source, token reviews and write time-outs."""

from unittest.mock import AsyncMock

import pytest

from activity_operator.cluster.kube import WRITE_TIMEOUT_SECONDS, ApiUnreachableError, KubeClient
from activity_operator.cluster.resources import PODS, Key
from activity_operator.cluster.shared_sources import SharedSources

A, B = ("ns", "a"), ("ns", "b")


def test_pools_that_share_a_source_are_notified_of_each_other() -> None:
    changed: list[Key] = []
    shared_sources = SharedSources(changed.append)

    shared_sources.record(A, "arn")
    assert shared_sources.sharing(A, "arn") == ()
    shared_sources.record(B, "arn")
    assert shared_sources.sharing(B, "arn") == ("ns/a",)
    assert changed == [A]
    assert shared_sources.sharing(A, "arn") == ("ns/b",)
    shared_sources.forget(B)
    assert changed == [A, A]
    assert shared_sources.sharing(A, "arn") == ()


async def test_token_review_asks_for_the_operators_audience() -> None:
    kube = KubeClient(None)
    kube._call = AsyncMock(return_value={"status": {"authenticated": True}})  # type: ignore[method-assign]

    assert await kube.create_token_review("a token", "activitypools.dev/operator") == {"authenticated": True}
    asked = kube._call.call_args.kwargs["body"]["spec"]
    assert asked == {"token": "a token", "audiences": ["activitypools.dev/operator"]}


@pytest.mark.parametrize(("timeout", "sent"), [(None, f"{WRITE_TIMEOUT_SECONDS:.0f}s"), (2.5, "2s"), (0.2, "1s")])
async def test_write_sends_its_timeout_to_the_server(timeout: float | None, sent: str) -> None:
    """A write that takes effect after its time-out could come from a process that has lost the Lease."""

    class Transport:
        configuration = AsyncMock(api_key={})
        param_serialize = AsyncMock(side_effect=ConnectionError)

    kube = KubeClient(Transport())
    with pytest.raises(ApiUnreachableError):
        await kube.replace(PODS, "ns", "p", {}, timeout)

    assert ("timeout", sent) in Transport.param_serialize.call_args.kwargs["query_params"]
