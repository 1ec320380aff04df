"""A change that is reverted leaves no trace once the workers of the change have gone."""

import asyncio
import copy
import json
from typing import Any

import pytest
from hypothesis import strategies as st

from activity_operator.cluster.resources import POOLS
from activity_worker.contract import LABEL_POOL
from tests.eventually import eventually
from tests.faults.api import Raw
from tests.hostile.users.drawn import DEFAULT_EXAMPLES, EXAMPLES, SEED, drawn
from tests.hostile.users.pools import ARN, IMAGE, Spec, specs
from tests.hostile.users.templates import TEMPLATES
from tests.hostile.users.tenant_cluster import SETTLED_SECONDS, TenantCluster, condition, spoken_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAIRS = 40 * max(1, EXAMPLES // DEFAULT_EXAMPLES)

#: A pool that had more workers keeps them for this time; here for none.
AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 0}}
HERE: tuple[Spec, ...] = (
    {"activityArn": ARN + "a", "minWorkers": 1},
    {"activityArn": ARN + "a", "minWorkers": 2, "podTemplate": {"metadata": {"labels": {"team": "a"}}}},
    {"source": {"redis": {"address": "127.0.0.1:1", "flow": "f", "queue": "q"}}, "minWorkers": 1},
    {"source": {"taskStore": {"url": "postgresql://u@127.0.0.1:1/d"}}, "replicas": 1},
    {"activityArn": ARN + "a", "podTemplate": {"spec": {"containers": [{"name": "side", "image": IMAGE}]}}},
)


@st.composite
def journeys(draw: st.DrawFn) -> tuple[Spec, Spec]:
    """Return a pool's spec, and the spec to which it changes meanwhile: another image, template, source, …"""
    here = copy.deepcopy(draw(st.sampled_from(HERE))) | {"handlerImage": IMAGE, "maxWorkers": 2, "scaling": AT_ONCE}
    there: dict[str, Any] = copy.deepcopy(here) | draw(
        st.fixed_dictionaries(
            {},
            optional={
                "handlerImage": st.sampled_from(("registry.invalid/handler:2", "a b")),
                "slotsPerWorker": st.sampled_from((2, 101)),
                "minWorkers": st.sampled_from((0, 1, 2, 3)),
                "replicas": st.sampled_from((0, 2)),
                "paused": st.just(True),
                "drain": st.just({"timeoutSeconds": 5}),
                "podTemplate": TEMPLATES,
            },
        )
    )
    if "source" in here and draw(st.booleans()):
        other = draw(specs())
        there |= {"source": other.get("source")} if other.get("source") else {}
    return here, there


def shown(deployments: list[Raw]) -> dict[str, Any]:
    """Return a pool's Deployments without the fields that count changes."""
    found = {}
    for raw in deployments:
        spec = json.loads(json.dumps(raw["spec"]))
        labels = raw["metadata"]["labels"]
        found[raw["metadata"]["name"]] = (spec.pop("replicas"), labels, json.dumps(spec, sort_keys=True))
    return found


def _brief(deployments: dict[str, Any]) -> str:
    return ", ".join(f"{name} has {one[0]}" for name, one in deployments.items())


async def of_pools(here: TenantCluster, namespace: str) -> dict[str, dict[str, Any]]:
    """Return the Deployments of a namespace by pool."""
    found: dict[str, list[Raw]] = {}
    for raw in await here.deployments(namespace):
        found.setdefault(raw["metadata"]["labels"][LABEL_POOL], []).append(raw)
    return {name: shown(deployments) for name, deployments in found.items()}


async def test_reverted_change_restores_the_deployments(here: TenantCluster) -> None:
    namespace = await here.namespace("travellers")
    pairs = {f"p{number}": pair for number, pair in enumerate(drawn(journeys(), PAIRS))}
    for name, (first, _) in pairs.items():
        assert (await here.create(namespace, name, first)).accepted
    await here.settled(namespace, pairs)
    await _until_replicas_are_as_wanted(here, namespace)
    before = await of_pools(here, namespace)

    names = list(pairs)
    went = await asyncio.gather(*(here.replace(namespace, name, pairs[name][1]) for name in names))
    away = [name for name, answer in zip(names, went, strict=True) if answer.accepted]
    assert len(away) > len(pairs) / 3
    await here.settled(namespace, away)
    assert await of_pools(here, namespace) != before
    for name in away:
        answer = await here.replace(namespace, name, pairs[name][0])
        assert answer.accepted, answer.message
    await here.settled(namespace, away)

    after: dict[str, dict[str, Any]] = {}

    async def back() -> bool:
        nonlocal after
        after = await of_pools(here, namespace)
        return after == before

    def changed() -> str:
        odd = [name for name in before if after.get(name) != before[name]]
        words = [f"{pairs[name]}: {_brief(before[name])}, now {_brief(after.get(name, {}))}" for name in odd]
        return f"seed {SEED}\n" + "\n".join(words)[:6000]

    await eventually("the Deployments are as before", back, seconds=SETTLED_SECONDS, every_seconds=0.5, details=changed)
    pools = await here.pools(namespace)
    # Conditions about the other spec are removed, too.
    assert [
        name for name, raw in pools.items() if condition(raw)["reason"] in {"InvalidSpec", "PodTemplateRejected"}
    ] == []
    assert all(spoken_of(raw) for raw in pools.values())
    await here.honest_work(1)
    await here.send("DELETE", POOLS.path(namespace))


async def _until_replicas_are_as_wanted(here: TenantCluster, namespace: str) -> None:
    async def quiet() -> bool:
        pools = await here.pools(namespace)
        wanted = {name: raw["status"].get("desiredReplicas", 0) for name, raw in pools.items()}
        found = await of_pools(here, namespace)
        return {name: sum(one[0] for one in each.values()) for name, each in found.items()} == wanted

    await eventually("Deployments have the replicas that are wanted", quiet, seconds=SETTLED_SECONDS, every_seconds=0.5)
