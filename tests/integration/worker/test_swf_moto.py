"""Deciders that others wrote, over moto's server: they schedule activities, and `activity-worker run` runs them."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.boto3_peer import client
from tests.conformance.emulators import MOTO, environment_of, running
from tests.conformance.swf_services import NO_TIMEOUTS
from tests.eventually import eventually

from .process import worker

ORDER = {"name": "order", "version": "1"}
_CLOSING = ("ActivityTaskCompleted", "ActivityTaskFailed", "ActivityTaskTimedOut", "ActivityTaskCanceled")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running(MOTO) as url:
        yield url


@pytest.fixture
def swf(url: str) -> Iterator[Any]:
    """boto3's client."""
    swf = client("swf", url)
    yield swf
    swf.close()


def run_on(url: str, domain: str) -> tuple[str, ...]:
    """Return the arguments of a worker that registers the types that the decider schedules."""
    names = ("--swf-domain", domain, "--swf-task-list", "charges", "--swf-register-activity-types", "true")
    return ("run", "tests.integration.worker.swf_handlers:app", *names, "--region", "us-east-1", "--endpoint-url", url)


def attributes(event: Mapping[str, Any]) -> dict[str, Any]:
    kind = event["eventType"]
    return dict(event[f"{kind[0].lower()}{kind[1:]}EventAttributes"])


def closings(history: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the closing events of each activity of a history, by its activity id."""
    ids = {
        event["eventId"]: attributes(event)["activityId"]
        for event in history
        if event["eventType"] == "ActivityTaskScheduled"
    }
    found: dict[str, list[str]] = {name: [] for name in ids.values()}
    for event in history:
        if event["eventType"] in _CLOSING:
            found[ids[attributes(event)["scheduledEventId"]]].append(event["eventType"])
    return found


def order(swf: Any, domain: str, *, scheduled: int) -> list[dict[str, Any]]:
    """Decide on an execution until it is complete: schedule activities at once, complete when all are closed."""
    started = swf.start_workflow_execution(domain=domain, workflowId="order-1", workflowType=ORDER)
    execution = {"workflowId": "order-1", "runId": started["runId"]}
    activities = [
        {
            "activityType": {"name": "double" if number else "refuse", "version": "1"},
            "activityId": f"a{number}",
            "taskList": {"name": "charges"},
            "input": str(number),
        }
        | NO_TIMEOUTS
        | {"heartbeatTimeout": "60"}
        for number in range(scheduled)
    ]
    decisions = [
        {"decisionType": "ScheduleActivityTask", "scheduleActivityTaskDecisionAttributes": each} for each in activities
    ]
    while True:
        task = swf.poll_for_decision_task(domain=domain, taskList={"name": "decisions"})
        if not task.get("taskToken"):
            continue
        closed = sum(event["eventType"] in _CLOSING for event in task["events"])
        if closed == scheduled:
            decisions = [{"decisionType": "CompleteWorkflowExecution"}]
        swf.respond_decision_task_completed(taskToken=task["taskToken"], decisions=decisions)
        if closed == scheduled:
            answer = swf.get_workflow_execution_history(domain=domain, execution=execution)
            return list(answer["events"])
        decisions = []


@pytest.mark.timeout(240)  # moto and a worker start on a busy machine
async def test_boto3_decider_on_moto_sees_each_activity_closed_once(url: str, swf: Any) -> None:
    swf.register_domain(name="boto3", workflowExecutionRetentionPeriodInDays="1")
    timeouts = {"defaultTaskStartToCloseTimeout": "300", "defaultExecutionStartToCloseTimeout": "3600"}
    lists = {"defaultTaskList": {"name": "decisions"}, "defaultChildPolicy": "TERMINATE"}
    swf.register_workflow_type(domain="boto3", **ORDER, **timeouts, **lists)
    async with worker(*run_on(url, "boto3"), "--slots", "3") as running:
        await running.line_with("worker ready")
        history = await asyncio.to_thread(order, swf, "boto3", scheduled=8)

    assert closings(history) == {"a0": ["ActivityTaskFailed"]} | {
        f"a{number}": ["ActivityTaskCompleted"] for number in range(1, 8)
    }
    results = [attributes(event)["result"] for event in history if event["eventType"] == "ActivityTaskCompleted"]
    assert sorted(map(int, results)) == [number * 2 for number in range(1, 8)]
    (failed,) = (attributes(event) for event in history if event["eventType"] == "ActivityTaskFailed")
    assert failed["reason"] == "LookupError"
    assert failed["details"].startswith("no such order")
    assert history[-1]["eventType"] == "WorkflowExecutionCompleted"


@asynccontextmanager
async def simpleflow(url: str, log: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command of simpleflow in its own process group, which is killed at the end: it forks."""
    program = environment_of(MOTO).find() / "bin" / "simpleflow"
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(log.parent),
        "PYTHONPATH": str(Path(__file__).parent),
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            program, *arguments, env=env, cwd=log.parent, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        # Its children poll on after SIGTERM, until their decision is made.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@pytest.mark.timeout(300)  # moto, a worker and two commands of simpleflow start on a busy machine
async def test_simpleflow_decider_on_moto_gets_results_and_a_failure(url: str, swf: Any, tmp_path: Path) -> None:
    swf.register_domain(name="simpleflow", workflowExecutionRetentionPeriodInDays="1")
    log = tmp_path / "simpleflow.log"
    begin = ("workflow.start", "--domain", "simpleflow", "--workflow-id", "order-1", "--input", "[21]")
    decide = ("decider.start", "--domain", "simpleflow", "--nb-processes", "1", "--task-list", "decisions")

    async def ended() -> dict[str, Any] | None:
        found = swf.list_closed_workflow_executions(
            domain="simpleflow", startTimeFilter={"oldestDate": 0}, executionFilter={"workflowId": "order-1"}
        )["executionInfos"]
        return dict(found[0]) if found else None

    async with worker(*run_on(url, "simpleflow")) as running:
        await running.line_with("worker ready")
        async with simpleflow(url, log, *begin, "simpleflow_order.Order") as starting:
            assert await starting.wait() == 0, log.read_text()
        async with simpleflow(url, log, *decide, "simpleflow_order.Order"):
            closed = await eventually("the execution has ended", ended, details=log.read_text)
    execution = closed["execution"]
    history = swf.get_workflow_execution_history(domain="simpleflow", execution=execution)["events"]

    assert closed["closeStatus"] == "COMPLETED"
    assert attributes(history[-1])["result"] == '{"four_times":84,"refused":true}'
    assert Counter(map(tuple, closings(history).values())) == {
        ("ActivityTaskCompleted",): 2,
        ("ActivityTaskFailed",): 1,
    }
