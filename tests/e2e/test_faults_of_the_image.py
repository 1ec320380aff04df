"""Rows of the fault table (docs/faults.md): a new image or a new template whose workers never start."""

import pytest

from tests.cluster import catalogue, find_image, load_image, probe
from tests.e2e.faults import Fault, busy_pool, busy_pools, term, wait_shown, wait_well, worker_with
from tests.e2e.harness import ClusterHarness
from tests.e2e.pool import a_pool

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes and the images

UNPULLABLE = "unpullable.invalid/handler:1"


def test_workers_that_never_start_are_reported_and_old_ones_keep_serving(
    harness: ClusterHarness, namespace: str
) -> None:
    since = term(harness)
    load_image(find_image(catalogue.probe()))
    names = ("unpullable", "foreign", "ends", "no-entrypoint", "silent", "no-handler")
    unpullable, foreign, ends, no_entrypoint, silent, no_handler = pools = [
        # A foreign process ignores SIGTERM; without this its pod would stay for half an hour.
        busy_pool(harness, namespace, name, drain={"timeoutSeconds": 0})
        for name in names
    ]
    workers = busy_pools(pools)

    unpullable.change(handlerImage=UNPULLABLE)
    foreign.change(handlerImage=probe.IMAGE)
    ends.change(podTemplate=worker_with(command=["python3", "-c", ""]))
    no_entrypoint.change(podTemplate=worker_with(command=["/no/such/binary"]))
    silent.change(podTemplate=worker_with(command=["dumb-init", "sleep", "3600"]))
    no_handler.change(podTemplate=worker_with(args=["run", "missing:handler"]))
    fresh = a_pool(harness, namespace, "fresh", maxWorkers=2, handlerImage=UNPULLABLE)
    fresh.executions.start()
    wait_shown(
        [
            Fault(unpullable, "ImagePullFailed", r"pod unpullable-\S+: (ErrImagePull|ImagePullBackOff): .*unpullable"),
            Fault(fresh, "ImagePullFailed", r"pod fresh-\S+: (ErrImagePull|ImagePullBackOff): .*unpullable.invalid"),
            Fault(foreign, "NoRuntime", r"pod foreign-\S+ (has run for more than 60 s|was killed) without a report"),
            Fault(silent, "NoRuntime", r"pod silent-\S+ (has run for more than 60 s|was killed) without a report"),
            Fault(
                ends, "NoRuntime", r"pod ends-\S+ ended with exit code 0 and without a report: is handlerImage built"
            ),
            Fault(no_entrypoint, "NoRuntime", r"pod no-\S+: the image has no activity-worker to start: .*/no/such/bin"),
            Fault(
                no_handler,
                "WorkerCrashed",
                r"pod no-\S+: the worker ended before it was ready: missing:handler: no",
                # When the worker's last report does not arrive, the Warning quotes the kubelet instead.
                warns=r"pod no-\S+: the worker ended before (it was ready: missing:handler: no|its first report \()",
            ),
        ],
        since,
    )
    workers.assert_untouched()
    for pool in pools:
        most = max((view.workers for view in pool.since()), key=len)
        assert len(most) <= 2, f"{pool.name} started more than one canary: {most}"
    no_handler.change(minWorkers=3, maxWorkers=3)
    workers.let_go()
    for pool in pools:
        pool.executions.start()
    no_handler.eventually("three workers are ready", lambda view: view.status.get("readyReplicas") == 3)

    for pool in (*pools, fresh):
        pool.change(handlerImage=harness.handler, podTemplate=worker_with())
    wait_well([*pools, fresh])
    for pool in (*pools, fresh):
        pool.wait_done()
        pool.assert_nothing_lost()
