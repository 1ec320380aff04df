"""The watches of the demo's namespace and the logs of its workers, as news. It asks the API server once and listens."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import client as kube
from kubernetes.aio import config as credentials
from kubernetes.aio.watch import Watch

from tests.demo import facts
from tests.demo.scene import LogNews, News, OperatorSays, PodNews, Pods, Replicas

#: Seconds until a watch that broke is opened again.
AGAIN_SECONDS = 1.0
#: What a watch or a log can end with while the API server is away.
BROKEN = (kube.ApiException, aiohttp.ClientError, OSError, TimeoutError, ValueError)

Raw = dict[str, Any]
Tell = Callable[[News], None]


class Watching:
    """Everything of one namespace, told to `tell` until the task that runs `run` is cancelled."""

    def __init__(self, kubeconfig: Path, namespace: str, tell: Tell) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._tell = tell
        self._logs: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Watch the pool, its Deployments, pods and Events."""
        configuration = kube.Configuration()
        await credentials.load_kube_config(str(self._kubeconfig), client_configuration=configuration)
        async with kube.ApiClient(configuration=configuration) as api:
            core, any_kind = kube.CoreV1Api(api), kube.CustomObjectsApi(api)
            custom = any_kind.list_namespaced_custom_object
            pools = ("activitypools.dev", "v1alpha1", self._namespace, "activitypools")
            deployments = ("apps", "v1", self._namespace, "deployments")
            events = ("events.k8s.io", "v1", self._namespace, "events")
            try:
                async with asyncio.TaskGroup() as watches:
                    watches.create_task(self._follow(api, _nothing, self._pool, custom, *pools))
                    watches.create_task(self._follow(api, self._deployments, self._deployment, custom, *deployments))
                    watches.create_task(self._follow(api, _nothing, self._event, custom, *events))
                    on_pod = self._pod_news(core)
                    watches.create_task(
                        self._follow(api, self._pods, on_pod, core.list_namespaced_pod, self._namespace)
                    )
            finally:
                for log in self._logs.values():
                    log.cancel()
                await asyncio.gather(*self._logs.values(), return_exceptions=True)

    async def _follow(
        self,
        api: Any,
        all_of_them: Callable[[list[Raw]], None],
        changed: Callable[[Raw, bool], None],
        ask: Callable[..., Awaitable[Any]],
        *where: str,
    ) -> None:
        """List once, then watch from there; from the start again when the watch breaks."""
        while True:
            try:
                listed = api.sanitize_for_serialization(await ask(*where))
                all_of_them(listed["items"])
                for raw in listed["items"]:
                    changed(raw, False)
                async with Watch(return_type="object") as watch:
                    stream = watch.stream(ask, *where, resource_version=listed["metadata"]["resourceVersion"])
                    async for event in stream:
                        changed(event["raw_object"], event["type"] == "DELETED")
            except BROKEN:
                await asyncio.sleep(AGAIN_SECONDS)

    def _pool(self, raw: Raw, gone: bool) -> None:
        if not gone:
            self._tell(facts.pool(raw))

    def _deployments(self, raws: list[Raw]) -> None:
        self._tell(Replicas({raw["metadata"]["name"]: facts.replicas(raw) for raw in raws}, all_of_them=True))

    def _deployment(self, raw: Raw, gone: bool) -> None:
        self._tell(Replicas({raw["metadata"]["name"]: 0 if gone else facts.replicas(raw)}))

    def _pods(self, raws: list[Raw]) -> None:
        self._tell(Pods(tuple(facts.pod(raw) for raw in raws)))

    def _event(self, raw: Raw, gone: bool) -> None:
        """Tell an Event about the pool; Kubernetes' own controllers tell theirs about pods and ReplicaSets."""
        if not gone and raw.get("regarding", {}).get("kind") == "ActivityPool":
            self._tell(OperatorSays(raw.get("note", ""), warning=raw.get("type") == "Warning"))

    def _pod_news(self, core: Any) -> Callable[[Raw, bool], None]:
        def changed(raw: Raw, gone: bool) -> None:
            pod = facts.pod(raw)
            self._tell(PodNews(pod, gone))
            run = (pod.uid, pod.restarts)
            if pod.running and not gone and run not in self._logs:
                self._logs[run] = asyncio.create_task(self._listen(core, pod))

        return changed

    async def _listen(self, core: Any, pod: facts.Pod) -> None:
        """Tell what the worker logs about tasks, from its first line to its last."""
        try:
            async with Watch(return_type="str") as log:
                stream = log.stream(core.read_namespaced_pod_log, pod.name, self._namespace, container="worker")
                async for text in stream:
                    line = facts.task_line(text)
                    if line is not None:
                        self._tell(LogNews(pod.uid, line))
        except BROKEN:
            return


def _nothing(_: list[Raw]) -> None:
    """Each object of these is told by itself."""
