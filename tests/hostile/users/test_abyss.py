"""One pool or its status, whatever it contains, must not stop the operator's work on other pools."""

import json
from typing import Any

import pytest

from activity_operator.cluster.resources import DEPLOYMENTS, POOLS
from tests.eventually import eventually
from tests.hostile.users.findings import activity
from tests.hostile.users.pools import ARN
from tests.hostile.users.tenant_cluster import SETTLED_SECONDS, TenantCluster, condition, spoken_of
from tests.manifests import pool

pytestmark = pytest.mark.asyncio(loop_scope="session")

MERGE = "application/merge-patch+json"
#: The API server's own limit is 10,000 levels.
DEEPEST = 9_900


@pytest.mark.parametrize("levels", [400, 1_500, DEEPEST])
async def test_deeply_nested_pool_is_refused_and_operator_survives(here: TenantCluster, levels: int) -> None:
    namespace = await here.namespace(f"abyss-{levels}")
    text = json.dumps(pool("deep", activity(podTemplate={"spec": {"affinity": "ABYSS"}})))
    body = text.replace('"ABYSS"', '{"a":' * levels + "1" + "}" * levels).encode()
    answer = await here.send("POST", POOLS.path(namespace), body)
    assert answer.accepted, answer.message
    try:
        found = (await here.settled(namespace, ["deep"]))["deep"]
        assert "is nested more than 40 levels deep" in condition(found)["message"]
        if levels == DEEPEST:
            # After a restart the lists must handle it too, not only the watch.
            here.harness.replicas[0].kill()
        assert (await here.create(namespace, "beside", activity(activityArn=ARN + "beside"))).accepted
        await here.settled(namespace, ["beside"])
        assert not here.harness.replicas[0].ended
    finally:
        await here.send("DELETE", POOLS.path(namespace))


@pytest.mark.parametrize(
    "status",
    [
        {"lastScaleTime": "9999-12-31T23:59:59-14:00"},
        {"lastScaleTime": "0001-01-01T00:00:00Z", "provenRevision": "$(id)\n"},
        {"decisions": [{"at": "0000-01-01T00:00:00Z", "desired": 0, "limit": "demand"}]},
        {"decisions": [{"at": "2026-01-01t00:00:00z", "desired": 2147483647, "limit": "demand"}]},
        {"events": [{"at": "0001-01-01T00:00:00+14:00", "name": "worker:\x1b[31m", "message": "a\nb"}]},
        {"desiredReplicas": -1, "busyWorkers": 2147483647, "selector": "x"},
    ],
    ids="-".join,
)
async def test_status_written_by_a_user_is_overwritten(here: TenantCluster, status: dict[str, Any]) -> None:
    namespace = await here.namespace(f"forged-{abs(hash(json.dumps(status)))}")
    assert (await here.create(namespace, "p", activity(activityArn=ARN + "forged"))).accepted
    await here.settled(namespace, ["p"])
    path = POOLS.path(namespace, "p", "status")
    answer = await here.send("PATCH", path, {"status": {"observedGeneration": 0, **status}}, MERGE)
    assert answer.accepted, answer.message

    found = (await here.settled(namespace, ["p"]))["p"]
    assert condition(found)["reason"] != "ReconcileFailed"
    assert found["status"]["desiredReplicas"] == 0
    assert json.dumps(found["status"]["events"]).isprintable()
    await here.send("DELETE", POOLS.path(namespace))


async def test_name_conflict_is_reported_and_the_other_object_is_left_alone(here: TenantCluster) -> None:
    namespace = await here.namespace("taken")
    spec = activity(activityArn=ARN + "taken")
    assert (await here.create(namespace, "p", spec)).accepted
    await here.settled(namespace, ["p"])
    (raw,) = await here.deployments(namespace)
    name = raw["metadata"]["name"]
    await here.send("DELETE", POOLS.path(namespace, "p"))

    async def gone() -> bool:
        return not await here.deployments(namespace)

    await eventually("the Deployment goes with its pool", gone, seconds=SETTLED_SECONDS)
    labels = {"app": "theirs"}
    container = {"name": "c", "image": "i"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    theirs = {"selector": {"matchLabels": labels}, "template": template, "replicas": 0}
    await here.send("POST", DEPLOYMENTS.path(namespace), {"metadata": {"name": name}, "spec": theirs})
    assert (await here.create(namespace, "p", spec)).accepted

    found = (await here.settled(namespace, ["p"]))["p"]
    assert condition(found)["reason"] == "ReconcileFailed"
    assert f"Deployment {name} belongs to another owner: delete it" in condition(found)["message"]
    await here.send("DELETE", DEPLOYMENTS.path(namespace, name))

    async def mended() -> bool:
        again = await here.pool(namespace, "p")
        return spoken_of(again) and condition(again)["reason"] != "ReconcileFailed"

    await eventually("the pool has its Deployment", mended, seconds=SETTLED_SECONDS)
    await here.send("DELETE", POOLS.path(namespace))
