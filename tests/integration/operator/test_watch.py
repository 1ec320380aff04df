"""A watch that is cut: the resync finds the lost events, and a dead watch fails /livez."""

from activity_operator.cluster.kube import Credentials, KubeClient
from activity_operator.cluster.resources import DEPLOYMENTS, POOLS
from tests.eventually import consistently, eventually
from tests.integration.operator.arrange import find, operator, pool
from tests.integration.operator.cut import Road


async def test_dead_watch_fails_livez(kube: KubeClient, load: Credentials, namespace: str, road: Road) -> None:
    """The API server answers everything but sends no event, so no error is raised anywhere."""
    watch = road.over(load)
    async with operator(namespace, load, watch_over=watch, sweep_seconds=2.0, watch_grace_seconds=2.0) as running:
        await kube.create(POOLS, namespace, pool("p"))
        await eventually("Deployment p-r1 exists", lambda: find(kube, namespace, "p-r1"))
        await eventually("the health port says alive", lambda: alive(running))
        road.hang()
        running.core.sizes["p"] = 0
        await kube.merge_patch(POOLS, namespace, "p", {"spec": {"maxWorkers": 5}})

        async def dead() -> str:
            code, text = await running.get("/livez")
            return text if code == 503 else ""

        assert "has not delivered" in await eventually("the health port says dead", dead)
        assert (await running.get("/readyz"))[0] == 200
        road.mend()
        await eventually("the health port says alive", lambda: alive(running))


async def alive(running: object) -> bool:
    """Whether /livez succeeds."""
    return bool((await running.get("/livez"))[0] == 200)  # type: ignore[attr-defined]


async def test_quiet_watch_is_not_taken_for_a_dead_one(kube: KubeClient, load: Credentials, namespace: str) -> None:
    # Long enough that even a slow machine gets the events of the Deployment and its pod in time.
    async with operator(namespace, load, sweep_seconds=0.5, watch_grace_seconds=4.0) as running:
        await kube.create(POOLS, namespace, pool("p"))
        await eventually("Deployment p-r1 exists", lambda: find(kube, namespace, "p-r1"))
        # Until kopf has started, the watch lags behind the resync.
        await eventually("no watch is to be checked", lambda: running.process.freshness.next_check is None)

        async def well() -> bool:
            return await running.get("/livez") == (200, "ok\n")

        await consistently("the health port says alive", well, seconds=6, every_seconds=0.3)


async def test_resync_finds_a_deletion_that_the_watch_missed(
    kube: KubeClient, load: Credentials, namespace: str, road: Road
) -> None:
    async with operator(namespace, load, watch_over=road.over(load), sweep_seconds=600.0) as running:
        await kube.create(POOLS, namespace, pool("p"))
        made = await eventually("Deployment p-r1 exists", lambda: find(kube, namespace, "p-r1"))
        await eventually(
            "the operator knows Deployment p-r1", lambda: running.process.store.by_name(DEPLOYMENTS, namespace, "p-r1")
        )
        road.hang()
        await kube.delete(DEPLOYMENTS, namespace, "p-r1", made["metadata"]["uid"])
        await consistently(
            "the operator still knows Deployment p-r1",
            lambda: running.process.store.by_name(DEPLOYMENTS, namespace, "p-r1"),
            seconds=0.5,
        )
        running.process.resyncer.request()

        again = await eventually("Deployment p-r1 exists", lambda: find(kube, namespace, "p-r1"))
        assert again["metadata"]["uid"] != made["metadata"]["uid"]
        road.mend()


async def test_watch_that_comes_back_reports_what_it_missed(
    kube: KubeClient, load: Credentials, namespace: str, road: Road
) -> None:
    async with operator(namespace, load, watch_over=road.over(load), sweep_seconds=600.0) as running:
        await kube.create(POOLS, namespace, pool("p"))
        await eventually("Deployment p-r1 exists", lambda: find(kube, namespace, "p-r1"))
        road.refuse()
        await kube.create(POOLS, namespace, pool("q"))

        async def missing() -> bool:
            return await find(kube, namespace, "q-r1") is None

        await consistently("Deployment q-r1 is not there", missing, seconds=0.3)
        road.mend()
        await eventually("Deployment q-r1 exists", lambda: find(kube, namespace, "q-r1"))
        assert await running.get("/livez") == (200, "ok\n")


async def test_watch_that_ends_for_good_ends_the_process(kube: KubeClient, load: Credentials, namespace: str) -> None:
    async with operator(namespace, load) as running:
        await eventually("the operator has listed everything", lambda: running.process.resyncer.covered)
        stop = running.process.watcher._stop_kopf
        loop = await eventually("the watcher has a loop", lambda: running.process.watcher._loop)
        loop.call_soon_threadsafe(stop.set)
        await eventually("the process has failed", lambda: running.process._failure)
        assert "kopf" in running.process._failure
