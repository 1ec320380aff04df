"""A rotated token: after a 401 the client reads the token again and repeats the call, without a restart."""

import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from activity_operator.cluster.kube import ApiError, ApiUnreachableError, KubeClient
from activity_operator.cluster.resources import PODS


class Answer:
    """A response of the transport."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.headers: dict[str, str] = {}

    async def read(self) -> bytes:
        return json.dumps({"reason": "Unauthorized"} if self.status == 401 else {"metadata": {}}).encode()


class Server:
    """A transport to an API server that accepts one token; `in_file` is the token in the file."""

    def __init__(self, accepted: str, in_file: str, first: str) -> None:
        self.accepted, self.in_file = accepted, in_file
        self.configuration = SimpleNamespace(api_key={"BearerToken": first})
        self.asked: list[str] = []
        self.reads = 0

    async def param_serialize(self, method: str, path: str, **_: Any) -> tuple[str, str]:
        return method, path

    async def call_api(self, *_: Any, **__: Any) -> Answer:
        token = self.configuration.api_key["BearerToken"]
        self.asked.append(token)
        return Answer(200 if token == self.accepted else 401)

    async def load(self, configuration: Any) -> None:
        self.reads += 1
        if not self.in_file:
            raise OSError("the file is being written")
        configuration.api_key["BearerToken"] = self.in_file


def client(server: Server, codes: list[int] | None = None) -> KubeClient:
    collected = [] if codes is None else codes
    return KubeClient(server, lambda _verb, _plural, code: collected.append(code), server.load)


async def test_call_refused_with_old_token_is_repeated_with_the_new_one() -> None:
    server, codes = Server(accepted="new", in_file="new", first="old"), list[int]()

    await client(server, codes).merge_patch(PODS, "shop", "w1", {})

    assert server.asked == ["old", "new"]
    assert codes == [401, 200]


async def test_new_token_is_used_for_later_calls() -> None:
    server = Server(accepted="new", in_file="new", first="old")
    kube = client(server)

    await kube.get(PODS, "shop", "w1")
    await kube.get(PODS, "shop", "w1")

    assert server.asked == ["old", "new", "new"]
    assert server.reads == 1


@pytest.mark.parametrize("in_file", ["old", ""])
async def test_refusal_without_a_new_token_is_raised(in_file: str) -> None:
    server = Server(accepted="new", in_file=in_file, first="old")

    with pytest.raises(ApiError, match="401"):
        await client(server).get(PODS, "shop", "w1")

    assert server.asked == ["old"]


async def test_call_is_repeated_only_once() -> None:
    server = Server(accepted="other", in_file="new", first="old")

    with pytest.raises(ApiError, match="401"):
        await client(server).get(PODS, "shop", "w1")

    assert server.asked == ["old", "new"]


async def test_answer_that_is_not_json_counts_as_unreachable() -> None:
    class Page(Answer):
        async def read(self) -> bytes:
            return b"<html>the proxy is restarting"

    server = Server(accepted="t", in_file="t", first="t")
    server.call_api = AsyncMock(return_value=Page(200))  # type: ignore[method-assign]

    with pytest.raises(ApiUnreachableError, match="no JSON object"):
        await client(server).get(PODS, "shop", "w1")
