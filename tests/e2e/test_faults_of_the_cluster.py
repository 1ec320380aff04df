"""Rows of the fault table (docs/faults.md): the cluster refuses an object, lacks one, or has no room."""

from typing import Any

import pytest

from tests.cluster.shell import ClusterError
from tests.e2e.faults import Fault, busy_pool, busy_pools, pod_with, term, wait_shown, wait_well, worker_with
from tests.e2e.harness import ClusterHarness
from tests.e2e.pool import a_pool
from tests.eventually import eventually_sync

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images

ELSEWHERE = "activitypools.dev/test"
MOUNTED: dict[str, Any] = {"volumes": [{"name": "secret", "secret": {"secretName": "absent-secret"}}]}


def test_pods_that_cannot_start_are_reported_and_running_workers_go_on(harness: ClusterHarness, namespace: str) -> None:
    since = term(harness)
    names = ("variables", "volume", "account", "nowhere", "typo", "host")
    variables, volume, account, nowhere, typo, host = pools = [busy_pool(harness, namespace, name) for name in names]
    workers = busy_pools(pools)

    variables.change(podTemplate=worker_with(envFrom=[{"configMapRef": {"name": "absent-config"}}]))
    volume.change(podTemplate=pod_with(MOUNTED, volumeMounts=[{"name": "secret", "mountPath": "/secret"}]))
    account.change(serviceAccountName="absent")
    nowhere.change(podTemplate=pod_with({"nodeSelector": {ELSEWHERE: namespace}}))
    typo.change(podTemplate=pod_with({"nodeSelektor": {ELSEWHERE: namespace}}))
    host.change(podTemplate=pod_with({"hostNetwork": True}))
    rejected = "PodTemplateRejected"
    wait_shown(
        [
            Fault(variables, "WorkersNotReady", r"pod variables-\S+: CreateContainerConfigError: configmap \"absent-"),
            Fault(
                volume, "WorkersNotReady", r"pod volume-\S+ has waited .* `kubectl describe pod volume-\S+` says what"
            ),
            Fault(account, rejected, r"pods \"account-\S+\" is forbidden: error looking up service account", True),
            Fault(nowhere, "WorkersUnschedulable", r"pod nowhere-\S+: 0/\d+ nodes are available"),
            Fault(typo, rejected, r".*spec.template.spec.nodeSelektor: field not declared in schema", True),
            Fault(host, rejected, r"spec.podTemplate.spec.hostNetwork 'true' is not allowed in a restricted pod", True),
        ],
        since,
    )
    workers.assert_untouched()
    workers.let_go()
    for pool in pools:
        pool.executions.start()

    harness.kubectl("create", "configmap", "absent-config", "-n", namespace)
    harness.kubectl("create", "secret", "generic", "absent-secret", "-n", namespace)
    account.change(serviceAccountName=None)
    typo.change(podTemplate=pod_with({"nodeSelektor": None}))
    host.change(podTemplate=pod_with({"hostNetwork": None}))
    harness.kubectl("label", "node", "--all", f"{ELSEWHERE}={namespace}", "--overwrite")
    try:
        wait_well(pools)
        for pool in pools:
            pool.wait_done()
            pool.assert_nothing_lost()
    finally:
        harness.kubectl("label", "node", "--all", f"{ELSEWHERE}-")


def test_quota_stops_growth_but_no_worker_until_it_is_raised(harness: ClusterHarness, namespace: str) -> None:
    since = term(harness)
    small = busy_pool(harness, namespace, "small", minWorkers=2, maxWorkers=3)
    workers = busy_pools([small])
    # The second worker is idle. Its start must not close the breaker later.
    small.wait_ready(2)
    _allow(harness, namespace, pods=1, deployments=1)
    small.change(minWorkers=3)
    none = a_pool(harness, namespace, "none", minWorkers=1, maxWorkers=1)

    wait_shown(
        [
            Fault(small, "QuotaExceeded", r"pods \"small-\S+\" is forbidden: exceeded quota: few, requested: pods=1"),
            Fault(none, "QuotaExceeded", r".*exceeded quota: few, requested: count/deployments.apps=1"),
        ],
        since,
    )
    limit = small.wait_until("ScalingLimited", "True", "StartBreakerOpen")
    assert limit.startswith('growth stopped: pods "small-')
    sizes = small.now.events("ScaledUp") + small.now.events("ScaledDown")
    # A new leader begins with a closed breaker and tries once more.
    assert len(sizes) <= 4 or term(harness) != since, f"the size went in a circle: {sizes}"
    workers.assert_untouched()
    workers.let_go()

    _allow(harness, namespace, pods=10, deployments=10)
    wait_well([small, none])
    small.wait_ready(3)
    none.executions.start()
    for pool in (small, none):
        pool.wait_done()
        pool.assert_nothing_lost()


def test_api_server_refuses_a_bad_pool_and_names_the_fix(harness: ClusterHarness, namespace: str) -> None:
    good = "arn:aws:states:us-east-1:123456789012:activity:resize"
    source = {"stepFunctions": {"activityArn": good}}

    def refusal(arn: str | None = good, **spec: Any) -> str:
        with pytest.raises(ClusterError) as refused:
            harness.apply_pool(namespace, "refused", arn, maxWorkers=2, **spec)  # type: ignore[arg-type]
        return str(refused.value)

    assert "spec.minWorkers: Invalid value: minWorkers 5 is greater than maxWorkers 2; lower it" in refusal(
        minWorkers=5
    )
    assert "is of the service 'sqs'; an activity's ARN has 'states' there" in refusal(good.replace("states", "sqs"))
    assert "activityArn and source are both set; keep exactly one of them" in refusal(source=source)


def _allow(harness: ClusterHarness, namespace: str, *, pods: int, deployments: int) -> None:
    """Set the namespace's quota and wait until it is in force."""
    hard = {"pods": str(pods), "count/deployments.apps": str(deployments)}
    metadata = {"name": "few", "namespace": namespace}
    harness.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}})
    in_force = ("get", "resourcequota", "few", "-n", namespace, "-o", "jsonpath={.status.hard.pods}")
    eventually_sync(
        f"the quota allows {pods} pods", lambda: harness.kubectl(*in_force) == str(pods), tolerate=(ClusterError,)
    )
