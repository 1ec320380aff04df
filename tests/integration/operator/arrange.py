"""Helpers for the operator's tests: a pool's manifest, a running operator, and reads of its Deployments."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp

from activity_operator.backlog.stepfunctions import StepFunctions
from activity_operator.cluster.interfaces import CoreFunctions
from activity_operator.cluster.kube import ApiError, Credentials, KubeClient
from activity_operator.cluster.resources import DEPLOYMENTS, Raw
from activity_operator.components import ClusterServices, Components
from activity_operator.core.tenancy import TenancyPolicy
from activity_operator.metrics import Metrics
from activity_operator.process import Process
from activity_operator.settings import OperatorSettings
from activity_operator.watch.kopf_watch import KopfWatch
from activity_operator.wiring import build_components, build_process, core_functions
from tests import manifests
from tests.integration.operator.plain import PlainCore, PlainOutside


def settings(namespace: str, **more: Any) -> OperatorSettings:
    """Return settings for one test. The Lease lasts as long as shipped, so that a busy machine ends no term."""
    quick: dict[str, Any] = {
        "namespace": namespace,
        "lease_retry_seconds": 0.3,
        "health_port": 0,
        "health_host": "127.0.0.1",
    }
    return OperatorSettings(**{**quick, **more})


class Running:
    """A running operator process, and what a test reads of it."""

    def __init__(self, process: Process, core: PlainCore) -> None:
        self.process = process
        self.core = core

    @property
    def outside(self) -> PlainOutside:
        outside: object = self.process.components
        assert isinstance(outside, PlainOutside)
        return outside

    async def get(self, path: str) -> tuple[int, str]:
        """GET a path of the health port."""
        url = f"http://127.0.0.1:{self.process.health.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def operator(
    namespace: str,
    load: Credentials,
    *,
    watch_over: Credentials | None = None,
    rooms: Callable[[str], StepFunctions] | None = None,
    real_core: bool = False,
    **more: Any,
) -> AsyncIterator[Running]:
    """Run an operator for the pools of one namespace.

    `watch_over` gives kopf credentials of its own; with `rooms` the operator's real components are used, over that task
    service. `real_core`: the operator's own decisions and manifests are used.
    """
    plain = PlainCore(namespace)

    def make_components(services: ClusterServices) -> Components:
        if rooms is not None:
            return build_components(services, rooms("test"))
        return cast("Components", PlainOutside(services))

    options = settings(namespace, **more)
    process = await build_process(
        options,
        load,
        Metrics("test"),
        TenancyPolicy,
        core=core_functions(options) if real_core else CoreFunctions(plain.decide, plain.render, plain.status),
        make_components=make_components,
    )
    if watch_over is not None:
        process.watcher = KopfWatch(watch_over, process.receive_event, process.resyncer.request_soon, process.fail)
    running = asyncio.create_task(process.run())
    try:
        yield Running(process, plain)
    finally:
        process.end()
        await running


def pool(name: str, **spec: Any) -> Raw:
    """Return a pool's manifest."""
    arn = f"arn:aws:states:us-east-1:123456789012:activity:{name}"
    full = {"activityArn": arn, "handlerImage": "registry.invalid/handler:1", "maxWorkers": 10, **spec}
    return manifests.pool(name, full)


async def find(kube: KubeClient, namespace: str, name: str) -> Raw | None:
    """Return a Deployment, None if there is none."""
    try:
        return await kube.get(DEPLOYMENTS, namespace, name)
    except ApiError as error:
        if error.missing:
            return None
        raise


async def replicas(kube: KubeClient, namespace: str, name: str) -> int | None:
    """Return a Deployment's replicas, None if there is no Deployment."""
    found = await find(kube, namespace, name)
    return None if found is None else int(found["spec"]["replicas"])
