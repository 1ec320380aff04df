"""Creates all generated pools and all former findings on one API server at once, and collects the effects."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from activity_operator.cluster.resources import POOLS
from activity_worker.contract import LABEL_POOL
from tests.faults.api import Raw
from tests.hostile.users.drawn import EXAMPLES, drawn
from tests.hostile.users.findings import FINDINGS
from tests.hostile.users.pools import specs
from tests.hostile.users.tenant_cluster import Answer, TenantCluster, condition

#: Pools at a time; larger chunks are slower.
CHUNK = 250
#: Seconds in which the operator should write nothing, and seconds after which it retries a refused Deployment
#: (`tests.faults.forked_operators.HASTE`).
PAUSE_SECONDS, REJECTED_SECONDS = 4.0, 2.0


@dataclass
class Seen:
    """One accepted pool: the object, its Deployments, and the API server's answer to a pod of each."""

    pool: Raw
    deployments: list[Raw]
    pods: list[Answer] = field(default_factory=list)


@dataclass
class Batch:
    """The results: answers by name, accepted pools, and the writes at rest."""

    specs: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)
    writes: Counter[str] = field(default_factory=Counter)
    events: list[Raw] = field(default_factory=list)
    metrics: str = ""
    namespace: str = ""

    def rejected(self) -> int:
        """Return how many Deployments the API server refused; the operator retries them."""
        ready = [condition(one.pool) for one in self.seen.values()]
        return sum(c["reason"] == "PodTemplateRejected" and "spec.podTemplate" not in c["message"] for c in ready)


async def play(here: TenantCluster) -> Batch:
    """Create everything, wait until it is settled, collect the effects, and delete it."""
    found = Batch(namespace=await here.namespace("tenant"))
    todo: list[tuple[str, Any]] = [(f"found-{finding.name}", finding.spec) for finding in FINDINGS]
    todo += [(f"made-{number}", spec) for number, spec in enumerate(drawn(specs(), EXAMPLES))]
    for start in range(0, len(todo), CHUNK):
        await _play(here, found, dict(todo[start : start + CHUNK]))
    return found


async def _play(here: TenantCluster, found: Batch, chunk: dict[str, Any]) -> None:
    found.specs |= chunk
    replies = await asyncio.gather(*(here.create(found.namespace, name, spec) for name, spec in chunk.items()))
    answers = dict(zip(chunk, replies, strict=True))
    found.answers |= answers
    accepted = [name for name, answer in answers.items() if answer.accepted]
    await here.settled(found.namespace, accepted)
    found.writes += await here.writes_within(PAUSE_SECONDS)
    pools = await here.settled(found.namespace, accepted)
    deployments = defaultdict(list)
    for raw in await here.deployments(found.namespace):
        deployments[raw["metadata"]["labels"][LABEL_POOL]].append(raw)
    seen = {name: Seen(pool, deployments[name]) for name, pool in pools.items()}
    await asyncio.gather(*(_judge(here, one) for one in seen.values()))
    found.seen |= seen
    found.events += await here.events(found.namespace)
    found.metrics = await here.metrics()
    await here.honest_work(1)
    await here.send("DELETE", POOLS.path(found.namespace))


async def _judge(here: TenantCluster, one: Seen) -> None:
    """Ask the API server whether it would admit a pod of each Deployment."""
    one.pods = [await admit(here, raw) for raw in one.deployments]


async def admit(here: TenantCluster, deployment: Raw) -> Answer:
    """Return the API server's answer to a dry run that creates a pod of the Deployment."""
    template, namespace = deployment["spec"]["template"], deployment["metadata"]["namespace"]
    body = {"metadata": {"name": "pod", **template["metadata"]}, "spec": template["spec"]}
    return await here.send("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)


def explained(words: Sequence[str], found: Batch) -> str:
    """Return the failures and the specs of the first pools concerned, for an assertion's message."""
    names = [word.partition(":")[0] for word in words[:5]]
    return "\n".join([*words[:20], *(f"{name}: {found.specs.get(name)}" for name in names)])
