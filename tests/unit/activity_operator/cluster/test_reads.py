"""A read on a connection that hangs is asked for again soon: tasks wait for who needs it."""

from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from activity_operator.cluster.kinds import SECRETS
from activity_operator.cluster.kube import READ_TIMEOUTS_SECONDS, ApiUnreachableError, KubeClient
from activity_operator.workers.custody import WAITING_HEARTBEAT_SECONDS

#: Until a Lease of 15 s that was just renewed is another's (decision of the election's defaults), and the least
#: HeartbeatSeconds that docs/limits.md asks for.
FAILOVER_SECONDS, TASK_SECONDS = 17.0, 30.0


class Server:
    """A transport whose first answers are these errors; `waited` is how long each call would have."""

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


async def test_a_list_that_hangs_is_asked_for_again_with_more_time() -> None:
    server = Server(TimeoutError(), TimeoutError())

    assert await KubeClient(server).list(SECRETS, "ns") == ([{}], "7")
    assert server.waited == [5.0, 10.0, 30.0]


async def test_a_get_that_hangs_is_asked_for_again_too() -> None:
    server = Server(TimeoutError())

    assert (await KubeClient(server).get(SECRETS, "ns", "certificates"))["items"] == [{}]
    assert server.waited == [5.0, 10.0]


async def test_a_list_is_never_content_with_an_older_view() -> None:
    """With a resourceVersion (0 above all) a server may answer from a cache behind what a leader has written."""
    server = Server()
    await KubeClient(server).list(SECRETS, "ns", "a=b")

    assert set(server.asked) == {"limit", "labelSelector", "timeout"}


async def test_a_list_that_nobody_answers_fails_at_last() -> None:
    server = Server(*(TimeoutError() for _ in READ_TIMEOUTS_SECONDS))
    with pytest.raises(ApiUnreachableError):
        await KubeClient(server).list(SECRETS, "ns")

    assert len(server.waited) == len(READ_TIMEOUTS_SECONDS)


async def test_an_api_server_that_is_away_is_not_asked_again_at_once() -> None:
    server = Server(aiohttp.ClientConnectionError("refused"))
    with pytest.raises(ApiUnreachableError):
        await KubeClient(server).list(SECRETS, "ns")

    assert server.waited == [5.0]


def test_a_task_that_waits_outlives_a_failover_in_which_one_list_hangs() -> None:
    assert WAITING_HEARTBEAT_SECONDS + FAILOVER_SECONDS + READ_TIMEOUTS_SECONDS[0] < TASK_SECONDS
