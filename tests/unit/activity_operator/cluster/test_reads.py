"""A read that hangs is repeated soon, because tasks wait for its result."""

from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from activity_operator.cluster.kube import READ_TIMEOUTS_SECONDS, ApiUnreachableError, KubeClient
from activity_operator.cluster.resources import SECRETS
from activity_operator.leases.heartbeats import WAITING_HEARTBEAT_SECONDS

#: Seconds until another replica holds a Lease of 15 s that was just renewed (the election's defaults), and the least
#: HeartbeatSeconds that docs/limits.md asks for.
FAILOVER_SECONDS, TASK_SECONDS = 17.0, 30.0


class Server:
    """A transport that first raises these errors; `waited` lists the time-out of each call."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.waited: list[float] = []
        self.asked: list[str] = []
        self.configuration = SimpleNamespace(api_key={})

    async def param_serialize(
        self, method: str, path: str, *, query_params: list[tuple[str, str]], **_: Any
    ) -> tuple[str, str]:
        self.asked += [name for name, _ in query_params]
        return method, path

    async def call_api(self, *_: Any, _request_timeout: aiohttp.ClientTimeout, **__: Any) -> Any:
        assert _request_timeout.total is not None
        self.waited.append(_request_timeout.total)
        if self.errors:
            raise self.errors.pop(0)
        return self

    status = 200

    async def read(self) -> bytes:
        return b'{"metadata": {"resourceVersion": "7"}, "items": [{}]}'


async def test_hanging_list_is_repeated_with_longer_timeouts() -> None:
    server = Server(TimeoutError(), TimeoutError())

    assert await KubeClient(server).list(SECRETS, "ns") == ([{}], "7")
    assert server.waited == [5.0, 10.0, 30.0]


async def test_hanging_get_is_repeated_with_a_longer_timeout() -> None:
    server = Server(TimeoutError())

    assert (await KubeClient(server).get(SECRETS, "ns", "certificates"))["items"] == [{}]
    assert server.waited == [5.0, 10.0]


async def test_list_sends_no_resource_version() -> None:
    """With a resourceVersion (0 above all) a server may answer from a cache that lacks the leader's own writes."""
    server = Server()
    await KubeClient(server).list(SECRETS, "ns", "a=b")

    assert set(server.asked) == {"limit", "labelSelector", "timeout"}


async def test_list_fails_after_the_last_timeout() -> None:
    server = Server(*(TimeoutError() for _ in READ_TIMEOUTS_SECONDS))
    with pytest.raises(ApiUnreachableError):
        await KubeClient(server).list(SECRETS, "ns")

    assert len(server.waited) == len(READ_TIMEOUTS_SECONDS)


async def test_refused_connection_is_not_repeated() -> None:
    server = Server(aiohttp.ClientConnectionError("refused"))
    with pytest.raises(ApiUnreachableError):
        await KubeClient(server).list(SECRETS, "ns")

    assert server.waited == [5.0]


def test_held_task_survives_a_failover_with_one_hanging_list() -> None:
    assert WAITING_HEARTBEAT_SECONDS + FAILOVER_SECONDS + READ_TIMEOUTS_SECONDS[0] < TASK_SECONDS
