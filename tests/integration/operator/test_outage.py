"""The API server is unavailable: the operator decides nothing, keeps running, and continues afterwards."""

from activity_operator.cluster.kube import Credentials, KubeClient
from activity_operator.cluster.resources import POOLS
from activity_operator.core.decision import SentinelOrder
from tests.eventually import consistently, eventually
from tests.integration.operator.arrange import find, operator, pool, replicas
from tests.integration.operator.cut import Road


async def test_operator_survives_an_outage_and_continues(
    kube: KubeClient, load: Credentials, namespace: str, road: Road
) -> None:
    async with operator(namespace, road.over(load)) as running:
        await kube.create(POOLS, namespace, pool("p"))
        await eventually("Deployment p-r1 exists", lambda: find(kube, namespace, "p-r1"))
        road.refuse()
        # The renew deadline passes first.
        await eventually(
            "the operator does not lead any more", lambda: running.outside.terms == [True, False], seconds=30
        )
        running.core.sizes["p"] = 2

        async def none() -> bool:
            return await replicas(kube, namespace, "p-r1") == 0

        await consistently("Deployment p-r1 has no replicas", none, seconds=1)
        assert (await running.get("/livez"))[0] == 200, "an outage is no fault of the operator's"
        road.mend()

        async def two() -> bool:
            return await replicas(kube, namespace, "p-r1") == 2

        await eventually("Deployment p-r1 has two replicas", two)
        assert running.process._failure == ""
        assert running.outside.terms == [True, False, True]


async def test_operator_that_starts_during_an_outage_waits_for_its_end(
    kube: KubeClient, load: Credentials, namespace: str, road: Road
) -> None:
    road.refuse()
    async with operator(namespace, road.over(load)) as running:
        await kube.create(POOLS, namespace, pool("p"))

        async def waits() -> bool:
            return [(await running.get(path))[0] for path in ("/readyz", "/livez")] == [503, 200]

        await consistently("the operator is alive and not ready", waits, seconds=2)
        road.mend()
        await eventually("Deployment p-r1 exists", lambda: find(kube, namespace, "p-r1"))
        assert (await running.get("/readyz"))[0] == 200


async def test_no_polls_are_ordered_during_an_outage(
    kube: KubeClient, load: Credentials, namespace: str, road: Road
) -> None:
    """The operator could not record a task that a poll would bring."""
    async with operator(
        namespace, road.over(load), lease_duration_seconds=60.0, lease_renew_deadline_seconds=50.0
    ) as running:
        orders = running.outside.sources.orders

        def ordered() -> SentinelOrder:
            # An operator that stops polling forgets its order until the next decision.
            return orders.get((namespace, "p"), SentinelOrder(0, 0))

        running.core.sentinel = SentinelOrder(2, 1)
        await kube.create(POOLS, namespace, pool("p"))
        await eventually("two polls are ordered", lambda: ordered() == SentinelOrder(2, 1))
        road.refuse()
        await eventually("no poll is ordered", lambda: ordered().polls == 0)
        assert running.process.elector.leading
        road.mend()
        await eventually("two polls are ordered again", lambda: ordered().polls == 2)
