"""Every pool that a user declares is either refused with a reason or carried out; it harms no other pool."""

import pytest

from tests.hostile.users import verdict
from tests.hostile.users.batch import PAUSE_SECONDS, REJECTED_SECONDS, Batch, explained
from tests.hostile.users.drawn import SEED
from tests.hostile.users.findings import FINDINGS, Finding
from tests.hostile.users.tenant_cluster import TenantCluster, condition

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_refusal_names_the_refused_field(batch: Batch) -> None:
    refused = {name: answer for name, answer in batch.answers.items() if not answer.accepted}
    words = [
        f"{name}: {answer.status} {answer.message[:300]}"
        for name, answer in refused.items()
        if answer.status not in (400, 422) or "spec" not in answer.message
    ]

    assert not words, f"seed {SEED}\n{explained(words, batch)}"
    assert 20 < len(refused) < len(batch.answers) - 60


async def test_accepted_pool_is_carried_out_or_its_condition_says_why_not(batch: Batch) -> None:
    words = [word for one in batch.seen.values() for word in verdict.of_pool(one.pool, one.deployments)]

    assert not words, f"seed {SEED}\n{explained(words, batch)}"
    assert sum(bool(one.deployments) for one in batch.seen.values()) > 30


async def test_no_pod_escalates_and_no_field_of_the_operator_is_overruled(batch: Batch) -> None:
    words = [
        word for one in batch.seen.values() for raw in one.deployments for word in verdict.of_deployment(raw, one.pool)
    ]

    assert not words, f"seed {SEED}\n{explained(words, batch)}"


async def test_every_pod_passes_the_restricted_pod_security_level(batch: Batch) -> None:
    words = [
        f"{name}: {answer.status} {answer.message[:400]}"
        for name, one in batch.seen.items()
        for answer in one.pods
        if not answer.accepted and ("PodSecurity" in answer.message or answer.status != 403)
    ]

    assert not words, f"seed {SEED}\n{explained(words, batch)}"


async def test_at_rest_only_refused_deployments_are_retried(batch: Batch) -> None:
    chunks = 1 + len(batch.answers) // 250
    tries = batch.rejected() * (PAUSE_SECONDS / REJECTED_SECONDS + 1)

    assert batch.writes["patch deployments"] <= tries
    assert batch.writes["patch activitypools"] <= 0.2 * len(batch.seen) + 20 * chunks


async def test_log_has_no_forged_line_and_no_sign_of_a_bug(batch: Batch, here: TenantCluster) -> None:
    # Another test breaks the policy's file on purpose.
    log = "".join(line for line in here.log().splitlines(True) if "the tenancy policy cannot be used" not in line)
    words = list(verdict.of_log(log))

    assert not words, f"seed {SEED}\n{explained(words, batch)}"
    assert not here.harness.replicas[0].ended


async def test_metrics_and_events_contain_no_text_of_a_user(batch: Batch, here: TenantCluster) -> None:
    assert not list(verdict.of_metrics(batch.metrics, here.namespaces, batch.namespace, batch.seen))
    assert f'namespace="{batch.namespace}"' in batch.metrics
    assert batch.events
    assert all(event["note"].isprintable() and event["reason"].isalpha() for event in batch.events)


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.name)
async def test_former_finding_stays_fixed(finding: Finding, batch: Batch) -> None:
    name = f"found-{finding.name}"
    answer = batch.answers[name]
    assert answer.accepted is not bool(finding.field), answer.message
    if finding.field:
        assert answer.status == 422
        assert finding.field in answer.message
        return
    ready = condition(batch.seen[name].pool)
    if finding.reason:
        assert (ready["reason"], finding.words in ready["message"]) == (finding.reason, True), ready["message"]
    else:
        assert ready["reason"] != "PodTemplateRejected", ready["message"]
        assert [answer.status for answer in batch.seen[name].pods] == [201]
