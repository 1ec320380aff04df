"""The watches of the demo's namespace: each list as it is after every change."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import client as kube
from kubernetes.aio import config as credentials
from kubernetes.aio.watch import Watch

from tests.demo.demo_state import DemoState, Raw

#: Seconds until a watch that broke is opened again.
AGAIN_SECONDS = 1.0
#: What a watch can end with while the API server is away.
BROKEN = (kube.ApiException, aiohttp.ClientError, OSError, TimeoutError, ValueError)


async def watch(kubeconfig: Path, namespace: str, demo_state: DemoState) -> None:
    """Let the state know of the pool, its Deployments, pods and Events, until it is cancelled."""
    configuration = kube.Configuration()
    await credentials.load_kube_config(str(kubeconfig), client_configuration=configuration)

    def pools(raws: Sequence[Raw]) -> None:
        for raw in raws:
            demo_state.saw_pool(raw, time.monotonic())

    async with kube.ApiClient(configuration=configuration) as api, asyncio.TaskGroup() as watches:
        ask = kube.CustomObjectsApi(api).list_namespaced_custom_object
        for told, *where in (
            (pools, "activitypools.dev", "v1alpha1", namespace, "activitypools"),
            (lambda raws: demo_state.saw_deployments(raws, time.monotonic()), "apps", "v1", namespace, "deployments"),
            (lambda raws: demo_state.saw_events(raws, time.monotonic()), "events.k8s.io", "v1", namespace, "events"),
        ):
            watches.create_task(_follow(api, told, ask, *where))
        watches.create_task(_follow(api, demo_state.saw_pods, kube.CoreV1Api(api).list_namespaced_pod, namespace))


async def _follow(
    api: Any, told: Callable[[Sequence[Raw]], None], ask: Callable[..., Awaitable[Any]], *where: str
) -> None:
    """List once, then watch from there; from the start again when the watch breaks."""
    while True:
        try:
            listed = api.sanitize_for_serialization(await ask(*where))
            known = {raw["metadata"]["name"]: raw for raw in listed["items"]}
            told(tuple(known.values()))
            async with Watch(return_type="object") as stream:
                version = listed["metadata"]["resourceVersion"]
                async for event in stream.stream(ask, *where, resource_version=version):
                    raw = event["raw_object"]
                    if event["type"] == "DELETED":
                        known.pop(raw["metadata"]["name"], None)
                    else:
                        known[raw["metadata"]["name"]] = raw
                    told(tuple(known.values()))
        except BROKEN:
            await asyncio.sleep(AGAIN_SECONDS)
