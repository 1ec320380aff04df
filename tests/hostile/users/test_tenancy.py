"""The tenancy policy protects other teams' objects and the operator's credentials, also after it changes."""

from collections.abc import Mapping

import pytest

from activity_operator.cluster.resources import POOLS
from activity_worker.contract import LABEL_POOL
from tests.eventually import eventually
from tests.hostile.users.batch import admit
from tests.hostile.users.findings import activity
from tests.hostile.users.pools import ARN, IMAGE
from tests.hostile.users.tenant_cluster import SETTLED_SECONDS, TenantCluster, condition

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROLE = "arn:aws:iam::123456789012:role/team-a"
OTHERS = ARN.replace("123456789012", "999999999999")
#: What a team tries, by the field that a policy may forbid; "" is allowed under any policy.
TRIES = {
    "own": activity(activityArn=ARN + "team-a-resize", minWorkers=1),
    "arn": activity(activityArn=OTHERS + "team-b-secret", minWorkers=1),
    "arn-like": activity(activityArn=OTHERS + "team-a-resize", minWorkers=1),
    "long-arn": {
        "source": {"stepFunctions": {"activityArn": OTHERS + "team-b-secret"}},
        "handlerImage": IMAGE,
        "maxWorkers": 2,
        "replicas": 1,
    },
    "role": activity(activityArn=ARN + "team-a-1", aws={"roleArn": ROLE + "-admin"}, minWorkers=1),
    "url": activity(
        activityArn=ARN + "team-a-2", aws={"endpointUrl": "http://127.0.0.1:1/.allowed.test"}, minWorkers=1
    ),
    "other": activity(activityArn=ARN + "team-a-3", aws={"endpointUrl": "http://127.0.0.2:1"}, minWorkers=1),
    "watch": activity(
        activityArn=ARN + "team-a-4", scaling={"prometheus": {"serverUrl": "http://127.0.0.2:1", "query": "x"}}
    ),
}
FIELDS = {
    "arn": "spec.activityArn",
    "arn-like": "spec.activityArn",
    "long-arn": "spec.source.stepFunctions.activityArn",
    "role": "spec.aws.roleArn",
    "url": "spec.aws.endpointUrl",
    "other": "spec.aws.endpointUrl",
    "watch": "spec.scaling.prometheus.serverUrl",
}
#: The rule that lets the honest pool's namespace work as before.
EVERYBODY_ELSE = {"namespaces": ["pools-*"], "endpointUrls": ["*"]}
STRICT = {
    "namespaces": ["team-*"],
    "activityArns": [ARN + "team-a-*"],
    "roleArns": [ROLE],
    "endpointUrls": ["http://*.allowed.test*"],
}
LAX = {"namespaces": ["team-*"], "activityArns": ["*"], "roleArns": [ROLE + "*"], "endpointUrls": ["http://*"]}


async def refused(here: TenantCluster, namespace: str) -> Mapping[str, str]:
    """Return the Ready messages of the pools that the policy refuses, by name."""
    pools = await here.pools(namespace)
    ready = {name: condition(raw) for name, raw in pools.items()}
    return {name: one["message"] for name, one in ready.items() if one.get("reason") == "TenancyDenied"}


async def test_policy_is_enforced_and_enforced_again_after_a_change(here: TenantCluster) -> None:
    namespace = await here.namespace("team-a")
    here.policy(EVERYBODY_ELSE, STRICT)
    for name, spec in TRIES.items():
        assert (await here.create(namespace, name, spec)).accepted

    async def judged() -> bool:
        return set(await refused(here, namespace)) == set(FIELDS)

    await eventually("the strict policy is in force", judged, seconds=SETTLED_SECONDS, every_seconds=0.5)
    messages = await refused(here, namespace)
    assert [
        name
        for name, field in FIELDS.items()
        if field not in messages[name] or "by the tenancy policy" not in messages[name]
    ] == []

    here.policy(EVERYBODY_ELSE, LAX)

    async def allowed() -> bool:
        return not await refused(here, namespace)

    await eventually("the lax policy is in force", allowed, seconds=SETTLED_SECONDS, every_seconds=0.5)
    here.policy(EVERYBODY_ELSE)

    async def all_refused() -> bool:
        return set(await refused(here, namespace)) == set(TRIES)

    await eventually("every pool is refused without a rule", all_refused, seconds=SETTLED_SECONDS, every_seconds=0.5)
    assert all("no rule for namespace team-a" in words for words in (await refused(here, namespace)).values())
    for raw in await here.deployments(namespace):
        assert (await admit(here, raw)).accepted
    await here.honest_work(1)
    await here.send("DELETE", POOLS.path(namespace))
    here.policy({"namespaces": ["*"], "endpointUrls": ["*"]})


async def test_broken_policy_keeps_the_last_good_one_and_empty_policy_denies(here: TenantCluster) -> None:
    namespace = await here.namespace("team-b")
    file = here.harness.folder / "tenancy.json"
    here.policy()
    for name in ("role", "watch"):
        assert (await here.create(namespace, name, TRIES[name])).accepted

    async def in_force() -> bool:
        # The operator reads the file every ten seconds. Until then the policy of the test before allows this pool, or
        # refuses its namespace; and no policy gives it a worker.
        return FIELDS["watch"] in (await refused(here, namespace)).get("watch", "")

    async def judged() -> bool:
        return set(await refused(here, namespace)) == {"role", "url", "watch"}

    await eventually("the default policy is in force", in_force, seconds=SETTLED_SECONDS, every_seconds=0.5)
    assert (await here.create(namespace, "url", TRIES["other"])).accepted
    assert (await here.create(namespace, "own", TRIES["own"])).accepted
    await eventually("the pools are refused", judged, seconds=SETTLED_SECONDS, every_seconds=0.5)
    file.write_text('{"rules": [{"namespaces": ["*"], "roleArns": "*"}]}')
    await eventually(
        "the operator logs that the policy is broken",
        lambda: "the last valid one stays in force" in here.log(),
        seconds=SETTLED_SECONDS,
        every_seconds=0.5,
    )
    assert await judged()
    deployments = await here.deployments(namespace)
    replicas = {raw["metadata"]["labels"][LABEL_POOL]: raw["spec"]["replicas"] for raw in deployments}
    assert replicas == {"own": 1, "role": 0, "url": 0, "watch": 0}
    await here.send("DELETE", POOLS.path(namespace))
    here.policy({"namespaces": ["*"], "endpointUrls": ["*"]})
