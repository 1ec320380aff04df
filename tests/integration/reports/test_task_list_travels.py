"""A task of Amazon SWF on its path from a poll of the operator into a real worker process, with type and execution."""

import json
from pathlib import Path

import pytest

from activity_operator.backlog.protocol import PollTarget
from activity_operator.backlog.swf import Swf
from activity_worker.contract import Env
from activity_worker.testing import SwfFake
from tests.eventually import eventually
from tests.integration.reports.harness import Operator, ReportHarness

DOMAIN, LIST, REGION = "shop", "invoices", "us-east-1"
HANDLER = "tests.integration.worker.swf_handlers:app"


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


async def test_tasks_that_the_operator_holds_reach_their_handlers(tmp_path: Path) -> None:
    async with SwfFake(domains=[DOMAIN]) as fake:
        fake.settings.poll_hold_seconds = 2.0
        harness = ReportHarness(tmp_path)
        target = PollTarget("", REGION, fake.url, domain=DOMAIN, task_list=LIST)
        operator = Operator(fake, "", harness.records, 1, target=target, service=Swf(pod_name="operator-1"))
        source = {
            Env.SWF_DOMAIN: DOMAIN,
            Env.SWF_TASK_LIST: LIST,
            Env.SWF_ENDPOINT_URL: fake.url,
            Env.REGION: REGION,
        }
        async with harness.run(operator):
            operator.look()
            fake.schedule(DOMAIN, LIST, "4", name="double", version="2")
            fake.schedule(DOMAIN, LIST, "{}", name="which", version="1")
            await eventually("the operator holds two tasks", lambda: operator.held() == 2)
            recorded = [lease.activity for lease in harness.records.kept.values()]
            async with harness.reporting_worker(HANDLER, source):
                await eventually("both tasks are completed", lambda: fake.counts.get("completed", 0) == 2)
                await eventually("no lease is recorded any more", lambda: not harness.records.kept)

        assert {(one.name, one.version) for one in recorded if one} == {("double", "2"), ("which", "1")}
        assert all(task.identity.startswith("activitypool-operator/") for task in fake.tasks)
        results = {task.name: json.loads(task.result) for task in fake.tasks}
        assert results["double"] == {"doubled": 8}
        which = next(task for task in fake.tasks if task.name == "which")
        assert results["which"] == {
            "id": which.activity_id,
            "workflow": which.workflow.workflow_id,
            "version": "1",
        }
