# ruff: noqa: ASYNC210, ASYNC220 - the fake's process is another one: blocking this one holds nothing up
"""boto3 against the SWF fake: the fake's HTTP API has the service's own form."""

import asyncio
import json
import signal
import subprocess
import sys
import urllib.request
from typing import Any

import pytest
from botocore.exceptions import ClientError

from activity_worker.testing import SwfFake
from activity_worker.wire.swf import SwfClient
from tests.conformance.boto3_peer import client, with_boto3

NONE = dict.fromkeys(("scheduleToStartTimeout", "scheduleToCloseTimeout", "heartbeatTimeout"), "NONE")


async def test_boto3_can_decide_and_work_on_an_execution() -> None:
    def story(swf: Any) -> None:
        swf.register_domain(name="shop", workflowExecutionRetentionPeriodInDays="1")
        assert swf.describe_domain(name="shop")["domainInfo"]["status"] == "REGISTERED"
        charge, order = {"name": "charge", "version": "1"}, {"name": "order", "version": "1"}
        swf.register_activity_type(domain="shop", **charge, defaultTaskStartToCloseTimeout="60")
        swf.register_workflow_type(domain="shop", **order, defaultTaskList={"name": "decisions"})
        run = swf.start_workflow_execution(domain="shop", workflowId="order-1", workflowType=order)["runId"]

        decision = swf.poll_for_decision_task(domain="shop", taskList={"name": "decisions"})
        attributes = {"activityType": charge, "activityId": "a", "taskList": {"name": "charges"}, "input": "3"} | NONE
        swf.respond_decision_task_completed(
            taskToken=decision["taskToken"],
            decisions=[{"decisionType": "ScheduleActivityTask", "scheduleActivityTaskDecisionAttributes": attributes}],
        )
        assert swf.count_pending_activity_tasks(domain="shop", taskList={"name": "charges"})["count"] == 1
        task = swf.poll_for_activity_task(domain="shop", taskList={"name": "charges"}, identity="boto3")
        assert (task["activityType"], task["input"]) == (charge, "3")
        assert swf.record_activity_task_heartbeat(taskToken=task["taskToken"])["cancelRequested"] is False
        swf.respond_activity_task_completed(taskToken=task["taskToken"], result="4")
        decision = swf.poll_for_decision_task(domain="shop", taskList={"name": "decisions"})
        swf.respond_decision_task_completed(
            taskToken=decision["taskToken"], decisions=[{"decisionType": "CompleteWorkflowExecution"}]
        )

        execution = {"workflowId": "order-1", "runId": run}
        described = swf.describe_workflow_execution(domain="shop", execution=execution)["executionInfo"]
        assert described["closeStatus"] == "COMPLETED"
        assert described["startTimestamp"] <= described["closeTimestamp"]
        events = swf.get_workflow_execution_history(domain="shop", execution=execution)["events"]
        assert [event["eventId"] for event in events] == list(range(1, len(events) + 1))
        assert events[-1]["eventType"] == "WorkflowExecutionCompleted"

    fake = SwfFake()
    await with_boto3("swf", fake, story)

    assert [(task.state, task.closing_events()) for task in fake.tasks] == [("completed", ["ActivityTaskCompleted"])]


async def test_boto3_maps_the_fakes_errors_to_its_classes() -> None:
    def story(swf: Any) -> None:
        known = swf.exceptions
        with pytest.raises(known.UnknownResourceFault):
            swf.describe_domain(name="nowhere")
        swf.register_domain(name="shop", workflowExecutionRetentionPeriodInDays="1")
        with pytest.raises(known.DomainAlreadyExistsFault):
            swf.register_domain(name="shop", workflowExecutionRetentionPeriodInDays="1")
        swf.register_activity_type(domain="shop", name="charge", version="1")
        with pytest.raises(known.TypeAlreadyExistsFault):
            swf.register_activity_type(domain="shop", name="charge", version="1")
        swf.deprecate_domain(name="shop")
        with pytest.raises(known.DomainDeprecatedFault):
            swf.register_activity_type(domain="shop", name="charge", version="2")

    await with_boto3("swf", SwfFake(), story)


async def test_fake_refuses_boto3_with_a_revoked_key() -> None:
    async with SwfFake(domains=["shop"]) as fake:
        swf = client("swf", fake.url)
        await asyncio.to_thread(swf.describe_domain, name="shop")
        fake.revoke_key("test")
        with pytest.raises(ClientError, match="UnrecognizedClientException"):
            await asyncio.to_thread(swf.describe_domain, name="shop")
        swf.close()

    assert fake.faults.seen == {"DescribeDomain:revoked-key": 1}


async def test_fake_process_serves_its_domains_and_its_own_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    command = [sys.executable, "-W", "error", "-m", "activity_worker.testing.swf", "--port", "0", "--domain", "shop"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            post(url, "tasks", {"domain": "shop", "taskList": "charges", "input": "3", "heartbeatSeconds": 30})
            worker = SwfClient.open(region="us-east-1", endpoint_url=url)
            task = await worker.poll_for_activity_task("shop", "charges", "w")
            assert task is not None
            assert task.activity is not None
            post(url, "cancel", {"workflowId": task.activity.workflow_id})
            assert await worker.record_heartbeat(task.token)
            await worker.respond_canceled(task.token, "half done")
            await worker.close()
            with urllib.request.urlopen(f"{url}/_fake/state", timeout=10) as reply:
                state = json.load(reply)
        finally:
            process.send_signal(signal.SIGTERM)

    assert [task["closing_events"] for task in state["tasks"]] == [["ActivityTaskCanceled"]]
    assert state["domains"] == {"shop": {"charges": {"queued": 0, "open_polls": 0}}}
    assert process.returncode == 0


def post(url: str, page: str, order: dict[str, Any]) -> None:
    request = urllib.request.Request(f"{url}/_fake/{page}", json.dumps(order).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=10) as reply:
        assert reply.status == 200
