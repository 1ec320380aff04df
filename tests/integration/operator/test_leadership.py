"""Two operators, one Lease: only one of them writes, and a former leader's scale-down is refused."""

import asyncio
from dataclasses import dataclass, field

import pytest

from activity_operator.clock import clock
from activity_operator.cluster.apply import Applier, NotLeadingError, Work
from activity_operator.cluster.election import Elector, Timing
from activity_operator.cluster.kube import ApiError, Credentials, KubeClient
from activity_operator.cluster.resources import DEPLOYMENTS, LEASES, POOLS, Raw
from activity_operator.cluster.store import Store
from activity_operator.core.decision import ApplyRevision, SetReplicas
from activity_operator.core.observation import PoolFacts
from activity_operator.watch.freshness import Freshness
from tests.eventually import consistently, eventually
from tests.integration.operator.arrange import Running, find, operator, pool, replicas
from tests.integration.operator.cut import Road
from tests.integration.operator.plain import PlainCore


@dataclass
class AlwaysLeading:
    """An elector that always claims to lead."""

    leading: bool = True
    led_since: float = 0.0
    reachable: bool = True


def applier(kube: KubeClient, store: Store, leader: AlwaysLeading | None = None) -> Applier:
    return Applier(
        kube, store, Freshness(60, clock), leader or AlwaysLeading(), clock=clock, emit_event=lambda *_: None
    )


async def a_deployment(kube: KubeClient, namespace: str, size: int) -> tuple[Raw, Raw]:
    """Make a pool with a Deployment of that size; return both."""
    made = await kube.create(POOLS, namespace, pool("p"))
    facts = PoolFacts(namespace, "p", made["metadata"]["uid"], 1)
    spec = type("Spec", (), {"handler_image": "registry.invalid/handler:1"})()
    manifest = dict(PlainCore(namespace).render(spec, facts, size))
    return made, await kube.apply(DEPLOYMENTS, namespace, "p-r1", manifest)


@pytest.mark.parametrize("wanted", [0, 2], ids=["a fall", "a raise that would be a fall"])
async def test_former_leaders_scale_down_is_refused(kube: KubeClient, namespace: str, wanted: int) -> None:
    made, seen_by_former = await a_deployment(kube, namespace, 1)
    version = seen_by_former["metadata"]["resourceVersion"] if wanted < 1 else None
    stale = Store(lambda _: None)
    stale.put(DEPLOYMENTS, seen_by_former)
    await kube.merge_patch(DEPLOYMENTS, namespace, "p-r1", {"spec": {"replicas": 5}})

    with pytest.raises(ApiError) as refused:
        await applier(kube, stale).apply(Work((namespace, "p"), made), (SetReplicas("p-r1", wanted, version),))

    assert refused.value.conflict
    assert await replicas(kube, namespace, "p-r1") == 5


@pytest.mark.parametrize("wanted", [1, 3], ids=["a fall", "a raise that would be a fall"])
async def test_former_leaders_whole_apply_does_not_scale_down(kube: KubeClient, namespace: str, wanted: int) -> None:
    made, seen_by_former = await a_deployment(kube, namespace, 2)
    stale = Store(lambda _: None)
    stale.put(DEPLOYMENTS, seen_by_former)
    await kube.merge_patch(DEPLOYMENTS, namespace, "p-r1", {"spec": {"replicas": 5}})
    facts = PoolFacts(namespace, "p", made["metadata"]["uid"], 1)
    spec = type("Spec", (), {"handler_image": "registry.invalid/handler:2"})()
    manifest = PlainCore(namespace).render(spec, facts, wanted)

    with pytest.raises(ApiError) as refused:
        await applier(kube, stale).apply(Work((namespace, "p"), made), (ApplyRevision("p-r1", "r1", wanted, manifest),))

    assert refused.value.conflict
    assert await replicas(kube, namespace, "p-r1") == 5


async def test_operator_writes_nothing_without_the_lease(kube: KubeClient, namespace: str) -> None:
    made, seen = await a_deployment(kube, namespace, 1)
    store = Store(lambda _: None)
    store.put(DEPLOYMENTS, seen)

    with pytest.raises(NotLeadingError):
        await applier(kube, store, AlwaysLeading(leading=False)).apply(
            Work((namespace, "p"), made), (SetReplicas("p-r1", 3, None),)
        )

    assert await replicas(kube, namespace, "p-r1") == 1


@dataclass
class Candidate:
    """An elector on its own relay, and whether it leads."""

    elector: Elector
    kube: KubeClient
    changes: list[bool] = field(default_factory=list)


async def candidate(namespace: str, load: Credentials, name: str) -> Candidate:
    kube = await KubeClient.connect(load)
    changes: list[bool] = []
    elector = Elector(
        kube,
        namespace,
        "lease",
        name,
        clock=clock,
        wall=clock,
        on_change=changes.append,
        timing=Timing(8.0, 6.0, 0.3, 0.8),
    )
    return Candidate(elector, kube, changes)


@pytest.mark.parametrize("fault", ["hang", "refuse"])
async def test_two_electors_never_lead_at_the_same_time(
    kube: KubeClient, load: Credentials, namespace: str, road: Road, fault: str
) -> None:
    """The holder loses the API server, silently or with an error; the other elector leads after the Lease."""
    one = await candidate(namespace, road.over(load), "one")
    two = await candidate(namespace, load, "two")
    first = asyncio.create_task(one.elector.run())
    await eventually("the first elector leads", lambda: one.elector.leading)
    second = asyncio.create_task(two.elector.run())
    together = 0

    async def watch() -> None:
        nonlocal together
        while True:
            together += one.elector.leading and two.elector.leading
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    getattr(road, fault)()
    await eventually("the second elector leads", lambda: two.elector.leading)
    assert not one.elector.leading
    road.mend()
    await consistently("the second elector leads alone", lambda: two.elector.leading and not together, seconds=2)
    lease = await kube.get(LEASES, namespace, "lease")
    for task in (first, second, watching):
        task.cancel()
    await asyncio.gather(first, second, watching, return_exceptions=True)
    await asyncio.gather(one.kube.close(), two.kube.close())

    assert together == 0
    assert lease["spec"]["holderIdentity"] == "two"
    assert one.changes == [True, False]
    assert two.elector.term > one.elector.term


async def test_next_operator_leads_at_once_when_the_first_one_stops(
    kube: KubeClient, load: Credentials, namespace: str
) -> None:
    async with operator(namespace, load, lease_duration_seconds=30.0, lease_renew_deadline_seconds=20.0) as one:
        await eventually("the first operator leads", lambda: one.process.elector.leading)
        async with operator(namespace, load) as two:
            await eventually("the second operator has listed everything", lambda: two.process.resyncer.covered)
            assert not two.process.elector.leading
            one.process.end()
            # Sooner than the first one's Lease would expire.
            await eventually("the second operator leads", lambda: two.process.elector.leading, seconds=20)
            await kube.create(POOLS, namespace, pool("p"))
            await eventually("Deployment p-r1 exists", lambda: find(kube, namespace, "p-r1"))


async def test_standby_decides_nothing_and_is_ready(kube: KubeClient, load: Credentials, namespace: str) -> None:
    async with operator(namespace, load) as one:
        await eventually("the first operator leads", lambda: one.process.elector.leading)
        async with operator(namespace, load) as two:
            await kube.create(POOLS, namespace, pool("p"))
            await eventually("the second operator knows the pool", lambda: two.process.store.pool((namespace, "p")))
            await eventually("the first operator reconciles the pool", lambda: one.core.seen)
            assert (await two.get("/readyz"))[0] == 200
            assert (await two.get("/livez"))[0] == 200
            assert two.core.seen == []
            assert two.outside.terms == []


async def test_stopping_operator_gives_up_the_lease_before_its_polls_end(
    kube: KubeClient, load: Credentials, namespace: str
) -> None:
    async with operator(namespace, load) as second, operator(namespace, load) as first:
        leader, other = (first, second) if await _leads_first(first, second) else (second, first)
        leader.outside.no_poll_open.clear()
        leader.process.end()
        await eventually("the other operator leads", lambda: other.process.elector.leading)

        assert leader.outside.terms == [True, False]
        leader.outside.no_poll_open.set()


async def _leads_first(first: Running, second: Running) -> bool:
    await eventually(
        "one of two operators leads", lambda: first.process.elector.leading or second.process.elector.leading
    )
    return first.process.elector.leading
