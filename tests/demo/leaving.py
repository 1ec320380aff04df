"""What was there before the demo, taking away what it brought, and what to look at when it failed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from botocore.exceptions import BotoCoreError, ClientError

from tests.cluster import Cluster, ClusterError, current, down, probe
from tests.cluster.cluster import read_record
from tests.cluster.emulators import manifest
from tests.cluster.progress import say, step
from tests.cluster.shell import run
from tests.demo import plan
from tests.e2e.executions import Executions
from tests.e2e.harness import SYSTEM, is_installed, tear_down

#: Lines of each log in the dump, and of how many workers.
LOG_LINES = 30
WORKERS_TOLD = 2


@dataclass(frozen=True)
class Found:
    """Which of the things that the demo needs were there before it, and so stay."""

    cluster: bool
    operator: bool
    emulator: bool

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [name for name, found in vars(self).items() if found]


def look_around() -> Found:
    """Say what is there. A cluster that was brought up and is not well counts: the demo repairs it, and leaves it."""
    if read_record() is None:
        return Found(cluster=False, operator=False, emulator=False)
    cluster = current()
    if cluster is None:
        return Found(cluster=True, operator=True, emulator=True)
    names = probe.kubectl(cluster, "get", "namespaces", "--output=name").split()
    return Found(True, is_installed(cluster), f"namespace/{manifest.NAMESPACE}" in names)


def clean_up(found: Found, namespace: str, executions: Executions | None) -> None:
    """Take away what the demo brought. With the cluster everything goes; the caches for the next run stay."""
    if not found.cluster:
        down()
        return
    cluster = current()
    if cluster is None:
        raise ClusterError("the cluster is not well: `make cluster-up` repairs it, `make cluster-down` ends it")
    failed = []
    for title, act in _steps(found, cluster, namespace, executions):
        try:
            with step(title):
                act()
        except ClusterError as error:  # the others are tried all the same
            failed.append(f"{title}: {error}")
    if failed:
        raise ClusterError("\n".join(failed))
    say(f"left as it was found: {', '.join(found.names)} (`make cluster-down` ends the cluster with all that is in it)")


def _steps(
    found: Found, cluster: Cluster, namespace: str, executions: Executions | None
) -> Iterator[tuple[str, Callable[[], object]]]:
    if executions is not None and found.emulator:
        yield "ending what is left of the executions", lambda: _forget(executions)
    there = ("get", "namespace", namespace, "--ignore-not-found", "--output=name")
    if probe.kubectl(cluster, *there).strip():
        yield "ending the demo's workers", lambda: probe.end_workers(cluster, namespace)
        words = ("delete", "namespace", namespace, "--timeout=60s")
        yield f"deleting namespace {namespace}", lambda: probe.kubectl(cluster, *words)
    if not found.operator:
        yield "uninstalling the operator and its CRD", tear_down
    if not found.emulator:
        emulator = ("delete", "namespace", manifest.NAMESPACE, "--ignore-not-found", "--wait=false")
        yield "deleting the emulator", lambda: probe.kubectl(cluster, *emulator)


def ways(cluster: Cluster, found: Found, namespace: str, executions: Executions | None) -> str:
    """Return how to look at what was kept, and how to take it away."""
    lines = [
        "kept. To look at it:",
        f"  export KUBECONFIG={cluster.kubeconfig} PATH={cluster.kubectl.parent}:$PATH",
        f"  kubectl -n {namespace} get apool,deployments,pods",
        f"  kubectl -n {namespace} describe apool {plan.POOL}",
        f"  kubectl -n {SYSTEM} logs -l app.kubernetes.io/name=activity-operator --tail=50",
    ]
    if executions is not None:
        endpoint = executions.states.meta.endpoint_url
        lines += [
            "To give it more work:",
            "  AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any AWS_DEFAULT_REGION=us-east-1 \\",
            f"  aws --endpoint-url {endpoint} stepfunctions start-execution \\",
            f"    --state-machine-arn {executions.machine} --input '{json.dumps({'seconds': 5})}'",
        ]
    lines += [
        "To take it away:",
        f"  kubectl -n {namespace} delete apool {plan.POOL} && kubectl delete namespace {namespace}",
    ]
    return "\n".join([*lines, "  make cluster-down" + ("  # it was up before" if found.cluster else "")])


def dump(cluster: Cluster, namespace: str) -> Iterator[str]:
    """Yield what helps to see why the demo failed; what cannot be had is left out with the reason."""
    for title, words in (
        ("the pool", ("-n", namespace, "describe", "activitypool", plan.POOL)),
        ("its pods", ("-n", namespace, "get", "deployments,pods", "-o", "wide")),
        ("warnings", ("-n", namespace, "get", "events", "--field-selector=type=Warning")),
        ("the operator's pods", ("-n", SYSTEM, "get", "pods")),
        ("the emulator's pods", ("-n", manifest.NAMESPACE, "get", "pods")),
    ):
        yield f"\n--- {title}\n{_said(cluster, *words)}"
    for where, pods in ((namespace, WORKERS_TOLD), (SYSTEM, None)):
        for pod in _said(cluster, "-n", where, "get", "pods", "--output=name").splitlines()[:pods]:
            log = _said(cluster, "-n", where, "logs", pod, f"--tail={LOG_LINES}")
            yield f"\n--- the last {LOG_LINES} lines of {pod} in {where}\n{log}"


def _said(cluster: Cluster, *words: str) -> str:
    try:
        return run([cluster.kubectl, f"--kubeconfig={cluster.kubeconfig}", *words], timeout_seconds=20)
    except ClusterError as error:
        return str(error)


def _forget(executions: Executions) -> None:
    """Stop the executions that run, and delete machine and activity; an emulator that is gone has forgotten already."""
    states = executions.states
    with contextlib.suppress(BotoCoreError, ClientError):
        pages = states.get_paginator("list_executions").paginate(
            stateMachineArn=executions.machine, statusFilter="RUNNING"
        )
        for execution in [found for page in pages for found in page["executions"]]:
            states.stop_execution(executionArn=execution["executionArn"])
        states.delete_state_machine(stateMachineArn=executions.machine)
        states.delete_activity(activityArn=executions.activity)
