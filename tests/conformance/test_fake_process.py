# ruff: noqa: ASYNC210, ASYNC220 - the fake is another process: blocking this one holds nothing up
"""The fake as a process of its own."""

import json
import signal
import subprocess
import sys
import urllib.request

from tests.conformance.services import Service


async def test_the_fake_says_where_it_listens_serves_and_ends_on_sigterm() -> None:
    """The line it prints is what scripts wait for."""
    command = [sys.executable, "-W", "error", "-m", "activity_worker.testing.stepfunctions", "--port", "0"]
    with subprocess.Popen([*command, "--region", "eu-west-1"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            async with Service("fake", url) as service:
                arn = await service.activity()
                task, _ = await service.task()
                await service.client.send_task_success(task.task_token, "{}")
            with urllib.request.urlopen(f"{url}/_fake/state?tasks=0", timeout=10) as reply:
                state = json.load(reply)
        finally:
            process.send_signal(signal.SIGTERM)

    assert arn.startswith("arn:aws:states:eu-west-1:123456789012:activity:")
    assert state["executions"] == {"SUCCEEDED": 1}
    assert state["counts"]["succeeded"] == 1
    assert "tasks" not in state
    assert process.returncode == 0
