"""Rows of the fault table (docs/faults.md): the task service refuses calls, is down, or is another one."""

import pytest

from tests.e2e.fake import fakes, serve, url
from tests.e2e.faults import Fault, busy_pool, busy_pools, term, wait_shown, wait_well
from tests.e2e.harness import SHORT, ClusterHarness
from tests.e2e.pool import Pool, a_pool

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images


def test_pool_at_zero_reports_an_unusable_service_and_then_recovers(harness: ClusterHarness, namespace: str) -> None:
    since = term(harness)
    missing = Pool(harness, namespace, "missing", harness.machine(f"missing-{namespace}"))
    harness.states.delete_activity(activityArn=missing.executions.activity)
    missing.apply(maxWorkers=1)
    here = harness.emulator.in_cluster_url
    elsewhere = a_pool(harness, namespace, "elsewhere", maxWorkers=1, aws={"region": "eu-west-1", "endpointUrl": here})
    nowhere = a_pool(harness, namespace, "nowhere", maxWorkers=1, aws={"region": "xx-nowhere-1"})
    with fakes(harness, namespace, "strict", "slow", "crowded") as (strict, slow, crowded):
        strict.inject("deny", "GetActivityTask")
        slow.inject("throttle", "GetActivityTask")
        crowded.set(activity_worker_limit=0)
        denied = a_pool(strict.harness, namespace, "denied", maxWorkers=1)
        throttled = a_pool(slow.harness, namespace, "throttled", maxWorkers=1)
        full = a_pool(crowded.harness, namespace, "full", maxWorkers=1)
        late = a_pool(strict.harness, namespace, "late", maxWorkers=1, aws={"endpointUrl": url(namespace, "later")})
        wait_shown(
            [
                Fault(denied, "AccessDenied", "allow states:GetActivityTask on arn:.* identity, or correct", True),
                Fault(
                    missing, "ActivityNotFound", "the activity arn:.* does not exist in us-east-1 at http://.*", True
                ),
                Fault(elsewhere, "WrongRegion", "the activity arn:.* is of region us-east-1 and does not exist", True),
                Fault(nowhere, "WrongRegion", "'xx-nowhere-1' is no region of AWS: correct spec.aws.region", True),
                Fault(late, "BackendUnreachable", f"no answer from us-east-1 at {url(namespace, 'later')}: check"),
                Fault(
                    throttled, "Throttled", "states:GetActivityTask is throttled in us-east-1 at .*ThrottlingException"
                ),
                Fault(full, "Throttled", "the activity arn:.* as many open polls as the service allows: lower maxWork"),
            ],
            since,
        )
        # Before its execution, because a task of a missing activity fails at once without a Retry.
        harness.states.create_activity(name=f"missing-{namespace}")
        pools = (missing, elsewhere, nowhere, denied, throttled, full, late)
        for pool in pools:
            pool.executions.start(1, seconds=1)

        elsewhere.change(aws={"region": None})
        nowhere.change(aws={"region": None, "endpointUrl": here})
        strict.clear_faults()
        slow.clear_faults()
        crowded.set(activity_worker_limit=1000)
        serve(harness, namespace, "later", "strict")
        wait_well(pools)
        for pool in pools:
            pool.wait_done()
            pool.assert_nothing_lost()


def test_workers_that_may_not_poll_finish_their_tasks_and_it_is_reported(
    harness: ClusterHarness, namespace: str
) -> None:
    since = term(harness)
    with fakes(harness, namespace, "strict", "slow", "crowded", "broken") as (strict, slow, crowded, broken):
        denied, throttled, full, down = pools = [
            busy_pool(fake.harness, namespace, name, minWorkers=2, maxWorkers=2, scaling=SHORT)
            for fake, name in ((strict, "denied"), (slow, "throttled"), (crowded, "full"), (broken, "down"))
        ]
        gone = busy_pool(crowded.harness, namespace, "gone", minWorkers=2, maxWorkers=2, scaling=SHORT)
        for pool in (*pools, gone):
            pool.wait_ready(2)
        workers = busy_pools([*pools, gone])

        for operation in ("GetActivityTask", "SendTaskHeartbeat", "SendTaskSuccess"):
            strict.inject("deny", operation)
        slow.inject("throttle", "GetActivityTask")
        crowded.set(activity_worker_limit=0)
        broken.inject("server-error", "GetActivityTask")
        crowded.harness.states.delete_activity(activityArn=gone.executions.activity)
        wait_shown(
            [
                Fault(denied, "AccessDenied", r"worker denied-\S+ may not poll: allow states:GetActivityTask on", True),
                Fault(throttled, "Throttled", r"the polls of worker throttled-\S+ are throttled in us-east-1"),
                Fault(full, "Throttled", r"the polls of worker full-\S+ are throttled .*ActivityWorkerLimitExceeded"),
                Fault(down, "BackendUnreachable", r"worker down-\S+ cannot poll us-east-1 at http.*InternalFailure"),
                Fault(gone, "ActivityNotFound", r"worker gone-\S+ polls in vain: the activity arn:.* not exist", True),
            ],
            since,
        )
        workers.assert_untouched()
        workers.let_go()

        for fake in (strict, slow, broken):
            fake.clear_faults()
        crowded.set(activity_worker_limit=1000)
        crowded.harness.states.create_activity(name=f"gone-{namespace}")
        wait_well([*pools, gone])
        for pool in pools:
            pool.executions.start(1, seconds=1)
            pool.wait_done()
            pool.assert_nothing_lost()
