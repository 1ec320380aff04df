"""Rows of the fault table (docs/faults.md) about rights: the operator's to review tokens, a tenant's to its ARN.

Both change what all pools share, so these tests need the operator for themselves.
"""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.faults import Fault, busy_pool, busy_pools, make_busy, term, wait_shown, wait_well
from tests.e2e.harness import SHORT, ClusterHarness
from tests.e2e.operator_days.operator import PODS, Operator
from tests.e2e.operator_days.view import NAME
from tests.e2e.pool import Pool, a_pool

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images

NAMES = ("tenant", "other")
RULES = f"clusterrole/{NAME}"


def test_workers_go_on_while_reports_cannot_be_authenticated(
    harness: ClusterHarness, operator: Operator, namespace: str
) -> None:
    since = term(harness)
    old = busy_pool(harness, namespace, "old")
    workers = busy_pools([old])
    with _without_token_reviews(harness):
        new = a_pool(harness, namespace, "new", minWorkers=1, maxWorkers=1)
        new.executions.start()
        pattern = "the API server does not answer TokenReviews: .*forbidden"
        wait_shown([Fault(new, "ReportsUnauthenticated", pattern)], since)
        # The operator believes the tokens that it has accepted for some minutes.
        assert old.now.says("Ready", "True", "PoolReady"), "a pool whose worker is heard says that it is not"
        workers.assert_untouched()

    wait_well([old, new])
    workers.let_go()
    for pool in (old, new):
        pool.wait_done()
        pool.assert_nothing_lost()
        assert len({worker for view in pool.since(0) for worker in view.workers}) == 1, "a worker was replaced"


@contextmanager
def _without_token_reviews(harness: ClusterHarness) -> Iterator[None]:
    """Remove the operator's right to TokenReviews inside the block."""
    rules = json.loads(harness.kubectl("get", RULES, "-o", "json"))["rules"]
    assert any("tokenreviews" in rule["resources"] for rule in rules)
    _set_rules(harness, [rule for rule in rules if "tokenreviews" not in rule["resources"]])
    try:
        yield
    finally:
        _set_rules(harness, rules)


def _set_rules(harness: ClusterHarness, rules: list[dict[str, Any]]) -> None:
    harness.kubectl("patch", RULES, "--type=merge", "-p", json.dumps({"rules": rules}))


def test_namespace_works_on_an_arn_only_while_the_policy_allows_it(
    harness: ClusterHarness, operator: Operator, namespace: str
) -> None:
    since = term(harness)
    refused = f"spec.activityArn 'arn:.*' is not allowed in namespace {namespace} by the tenancy policy; use an allowed"
    begin = operator.now
    before = json.loads(operator.helm("get", "values", NAME, "--output", "json"))["tenancy"]
    machines = (harness.machine(f"{uuid.uuid4().hex}-{name}", HeartbeatSeconds=300) for name in NAMES)
    tenant, other = (Pool(harness, namespace, name, machine) for name, machine in zip(NAMES, machines, strict=True))
    try:
        _allow_only(operator, namespace, "tenant")
        make_busy(tenant, scaling=SHORT)
        other.apply(maxWorkers=1)
        wait_shown([Fault(other, "TenancyDenied", refused, needs_a_person=True)], since)
        other.executions.start()
        workers = busy_pools([tenant])
        assert not [view.workers for view in other.since() if view.workers], "a pool works on a refused activity"

        tenant.act()
        _allow_only(operator, namespace, "other")
        wait_shown([Fault(tenant, "TenancyDenied", refused, needs_a_person=True)], since)
        wait_well([other])
        other.wait_done()
        workers.assert_untouched()
        workers.let_go()
        tenant.wait_done()
    finally:
        operator.upgrade(tenancy=before)
        _hurry(operator)
    wait_well([tenant, other])
    tenant.executions.start()
    for pool in (tenant, other):
        pool.wait_done()
        pool.assert_nothing_lost()
    uids = {replica.uid for view in operator.since(begin.moment.number) for replica in view.replicas.values()}
    assert uids == {replica.uid for replica in begin.replicas.values()}, "a new policy took a restart"


def _allow_only(operator: Operator, namespace: str, name: str) -> None:
    """Set a policy that allows the namespace one of the two activities; other namespaces keep their rights."""
    mine = {"namespaces": [namespace], "activityArns": [f"*:activity:*-{name}"], "endpointUrls": ["*"]}
    others = {"namespaces": ["*"], "activityArns": ["*:activity:*-e2e-*"], "endpointUrls": ["*"]}
    operator.upgrade(tenancy={"rules": [mine, others]})
    _hurry(operator)


def _hurry(operator: Operator) -> None:
    """Make the kubelet update the replicas' volumes now; without a change of the pod it takes about a minute."""
    operator.kubectl("annotate", *PODS, "--overwrite", f"looked-at={uuid.uuid4().hex}")
