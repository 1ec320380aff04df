"""The process takes a term, and shuts down within seconds: it ends its term before its first request."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, MagicMock

import pytest

from activity_operator import process as module
from activity_operator import wiring
from activity_operator.cluster.all_pools import AllPools
from activity_operator.cluster.kube import ApiError, ApiUnreachableError, KubeClient
from activity_operator.components import Components
from activity_operator.core.tenancy import TenancyPolicy
from activity_operator.metrics import Metrics
from activity_operator.process import Process
from activity_operator.settings import OperatorSettings
from activity_operator.wiring import build_process
from tests.unit.activity_operator.virtual_time import VirtualLoop, elapsed, settle

#: Duration of a LIST without an answer: three attempts, the last of 30 s.
HANGS_SECONDS = 45.0
#: Seconds of the chart's grace period that remain beside the open polls.
SPARE_SECONDS = 30.0


class Api:
    """One Lease, and pods whose LIST may hang; `log` holds each event with its time."""

    def __init__(self) -> None:
        self.log: list[tuple[str, float]] = []
        self.lease: dict[str, Any] = {}
        self.hangs = False
        self.labelled = True
        self.close = AsyncMock()

    def note(self, what: str) -> None:
        """Record an event with the current time."""
        self.log.append((what, elapsed()))

    def when(self, what: str) -> float:
        """Return the time of the first such event."""
        return next(at for event, at in self.log if event == what)

    async def list(self, *_: object) -> tuple[list[dict[str, Any]], str]:
        self.note("list")
        if self.hangs:
            await asyncio.sleep(HANGS_SECONDS)
            raise ApiUnreachableError("no answer")
        return [{"metadata": {"name": "me", "resourceVersion": "1"}}] if self.labelled else [], "1"

    async def merge_patch(self, *_: object) -> dict[str, Any]:
        self.note("label")
        self.labelled = not self.labelled
        return {}

    async def get(self, *_: object) -> dict[str, Any]:
        if not self.lease:
            raise ApiError(404, "NotFound", "no lease")
        return self.lease

    async def create(self, kind: object, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        self.lease = {**body, "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"}}
        return self.lease

    async def replace(self, kind: object, namespace: str, name: str, body: dict[str, Any], _: float) -> dict[str, Any]:
        self.note("release")
        self.lease = body
        return body


async def built(api: Api) -> Process:
    """Return a process that has not started anything."""
    outside = MagicMock()
    outside.end_term.side_effect = lambda: api.note("end of term")
    outside.close_polls = AsyncMock(side_effect=lambda _: api.note("close polls"))
    outside.stop = AsyncMock()
    settings = OperatorSettings(namespace="ops", pod_name="me", health_host="127.0.0.1", health_port=0)
    return await build_process(
        settings,
        AsyncMock(),
        Metrics("test"),
        TenancyPolicy,
        core=MagicMock(),
        make_components=lambda _: cast("Components", outside),
    )


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    """Return an API server for the process, which runs in virtual time."""
    api = Api()
    monkeypatch.setattr(module, "clock", elapsed)
    monkeypatch.setattr(wiring, "clock", elapsed)
    monkeypatch.setattr(KubeClient, "connect", AsyncMock(return_value=api))
    return api


def in_virtual_time(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(scenario)


def end(api: Api) -> None:
    """Shut a leader down."""

    async def scenario() -> None:
        process = await built(api)
        await process.elector.step()
        assert process.elector.leading
        await process._stop()
        assert not process.elector.leading

    in_virtual_time(scenario())


def test_new_leader_gets_the_label_at_once(api: Api) -> None:
    api.labelled = False

    async def scenario() -> None:
        process = await built(api)
        keeping = asyncio.create_task(process.label.keep())
        await asyncio.sleep(100)
        await process.elector.step()
        await settle()
        assert api.labelled
        keeping.cancel()
        await process._stop()

    in_virtual_time(scenario())


def test_leader_ends_its_term_before_any_request_of_its_shutdown(api: Api) -> None:
    end(api)

    assert [event for event, _ in api.log] == ["end of term", "list", "label", "release", "close polls"]
    assert api.lease["spec"]["holderIdentity"] == ""


def test_hanging_api_server_does_not_delay_the_shutdown(api: Api) -> None:
    api.hangs = True

    end(api)

    assert api.when("end of term") == 0
    assert api.when("close polls") < SPARE_SECONDS / 3
    assert api.when("release") <= api.when("close polls")


def test_only_the_first_sweep_of_a_term_queues_all_pools_at_once(api: Api) -> None:
    """What a later sweep changed in the store is queued already; all other pools may wait for seconds."""
    queued: list[str] = []

    async def scenario() -> None:
        process = await built(api)
        process.all_pools = cast(
            "AllPools",
            SimpleNamespace(enqueue=lambda: queued.append("at once"), enqueue_spread=lambda: queued.append("spread")),
        )
        process.watcher = MagicMock(stop=AsyncMock())
        await process.elector.step()
        for _ in range(3):
            process.resyncer.covered = elapsed()
            process.resynced()
        await process._stop()

    in_virtual_time(scenario())
    assert queued == ["at once", "spread", "spread"]
