"""All components in one process: certificates reach a pool's namespace, and the report port answers correctly."""

import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import aiohttp
import pytest

from activity_operator.backlog.stepfunctions import StepFunctions
from activity_operator.cluster.kube import ApiError, Credentials, KubeClient
from activity_operator.cluster.resources import CONFIG_MAPS, POOLS, Raw
from activity_operator.components import Components
from activity_operator.wiring import report_names
from activity_worker.contract import REPORT_PATH
from tests.eventually import eventually
from tests.integration.operator.arrange import Running, operator, pool

PORTS: dict[str, Any] = {"report_port": 0, "report_host": "127.0.0.1"}


async def bundle(kube: KubeClient, namespace: str) -> str:
    """Return the CA bundle for workers of the namespace, "" if there is none yet."""
    try:
        found: Raw = await kube.get(CONFIG_MAPS, namespace, "activitypool-ca")
    except ApiError:
        return ""
    return str(found["data"]["ca.crt"])


async def ask(running: Running, trusted: str, name: str) -> tuple[int, str]:
    """Send an empty report without a token, like a worker that verifies the Service's name."""
    rooms = running.process.components
    assert isinstance(rooms, Components)
    url = f"https://127.0.0.1:{rooms.server.port}{REPORT_PATH}"
    context = ssl.create_default_context(cadata=trusted)
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, ssl=context, server_hostname=name, json={}) as answer,
    ):
        return answer.status, await answer.text()


def all_looked_at(running: Running, count: int) -> bool:
    """Whether `count` pools have been reconciled."""
    return len({observation.pool.name for observation in running.core.seen}) == count


@pytest.mark.parametrize("leads", [True, False])
async def test_workers_reach_the_leader_by_tls_and_need_a_token(
    kube: KubeClient, load: Credentials, namespace: str, leads: bool
) -> None:
    async with operator(namespace, load, rooms=StepFunctions, **PORTS) as first:
        await kube.create(POOLS, namespace, pool("p"))
        trusted = await eventually("the bundle of certificates exists", lambda: bundle(kube, namespace))
        name = report_names(first.process.settings)[0]
        if leads:
            assert (await ask(first, trusted, name))[0] == 401
            return
        async with operator(namespace, load, rooms=StepFunctions, **PORTS) as second:
            await eventually("the second operator has listed everything", lambda: second.process.resyncer.covered)
            rooms = second.process.components
            assert isinstance(rooms, Components)
            await eventually(
                "the report server listens with a certificate",
                lambda: rooms.certificates.bundle and rooms.server._listener,
            )
            assert (await ask(second, trusted, name))[0] == 421


async def test_new_leader_does_not_rewrite_an_unchanged_bundle(
    kube: KubeClient, load: Credentials, namespace: str, writes: Callable[[], list[dict[str, Any]]]
) -> None:
    """Otherwise a failover would cause one write for each tenant's namespace."""
    for number in range(3):
        await kube.create(POOLS, namespace, pool(f"p{number}"))
    written = []
    for _ in range(2):
        async with operator(namespace, load, rooms=StepFunctions, **PORTS) as running:
            await eventually("three pools are looked at", partial(all_looked_at, running, 3))
        written.append([entry["verb"] for entry in writes() if entry["objectRef"]["resource"] == "configmaps"])

    assert written == [["patch"], []]


async def test_operator_that_cannot_listen_for_reports_ends_with_the_reason(load: Credentials, namespace: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with operator(namespace, load, rooms=StepFunctions, report_host="127.0.0.1", report_port=port) as running:
            await eventually("the process has failed", lambda: running.process._failure)

            assert running.process._failure.startswith(f"listening for reports on port {port} failed: ")
