# ruff: noqa: ASYNC210, ASYNC220 - the fake is another process: blocking this one holds nothing up
"""The fake as a process of its own."""

import json
import signal
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.cluster import certificates
from tests.conformance.services import Service


async def test_fake_prints_its_address_serves_and_ends_on_sigterm() -> None:
    """Scripts wait for the line that it prints."""
    command = [sys.executable, "-W", "error", "-m", "activity_worker.testing.stepfunctions", "--port", "0"]
    with subprocess.Popen([*command, "--region", "eu-west-1"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            async with Service("fake", url) as service:
                arn = await service.activity()
                task, _ = await service.task()
                await service.client.send_task_success(task.token, "{}")
            with urllib.request.urlopen(f"{url}/_fake/state?tasks=0", timeout=10) as reply:
                state = json.load(reply)
        finally:
            process.send_signal(signal.SIGTERM)

    assert arn.startswith("arn:aws:states:eu-west-1:123456789012:activity:")
    assert state["executions"] == {"SUCCEEDED": 1}
    assert state["counts"]["succeeded"] == 1
    assert "tasks" not in state
    assert process.returncode == 0


def test_fake_serves_https_with_the_callers_certificate(tmp_path: Path) -> None:
    authority = certificates.authority(tmp_path, "ca")
    own = certificates.issue(authority, tmp_path, "fake", user="fake", addresses=["127.0.0.1"])
    command = [sys.executable, "-W", "error", "-m", "activity_worker.testing.stepfunctions", "--port", "0"]
    command += ["--tls-certificate", str(own.certificate), "--tls-key", str(own.key)]
    trust = ssl.create_default_context(cafile=str(authority.certificate_file))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            with urllib.request.urlopen(f"{url}/_fake/state", timeout=10, context=trust) as reply:
                state = json.load(reply)
        finally:
            process.send_signal(signal.SIGTERM)

    assert url.startswith("https://127.0.0.1:")
    assert state["activities"] == {}
    assert process.returncode == 0
