"""What a running task says about itself: in the log, and at `/tasks` to callers in the pod."""

import asyncio
import json
import socket
import sys
from pathlib import Path

import aiohttp
import pytest

from activity_worker.cli.main import main
from activity_worker.cli.status import describe
from activity_worker.contract import WorkerState, lease_id
from activity_worker.supervisor.health import WorkerHealthServer
from activity_worker.supervisor.metrics import WorkerMetrics
from activity_worker.testing.stepfunctions import FakeSettings, StepFunctionsFake
from tests.eventually import eventually

from .process import HANDLERS, probe, worker

EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:images:nightly"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


async def test_running_task_shows_its_execution_and_progress(tmp_path: Path) -> None:
    gate, port = tmp_path / "gate", free_port()
    value = {"gate": str(gate), "_activity": {"execution": EXECUTION, "state": "Resize", "retries": 1}}
    async with StepFunctionsFake(settings=FakeSettings(poll_hold_seconds=1.0)) as fake:
        arn = fake.create_activity("work")
        (task,) = fake.schedule(arn, json.dumps(value))
        flags = ("--health-port", str(port), "--task-deadline-seconds", "600")
        arguments = ("run", f"{HANDLERS}:reports_progress", "--activity-arn", arn, "--endpoint-url", fake.url, *flags)
        async with worker(*arguments) as running:
            await running.line_with("at work")

            async def shown() -> bool:
                return "heartbeat" in (await probe(port, "/tasks"))[1]

            await eventually("the page has the heartbeat", shown)
            status, text = await probe(port, "/tasks")
            said = await status_command("--health-port", str(port))
            as_json = await status_command("--health-port", str(port), "--json")
            gate.touch()
            await fake.until(lambda: task.ended_at is not None)
            await running.line_with("task succeeded")

    assert status == 200
    (entry,) = json.loads(text)
    assert (entry["lease"], entry["task"], entry["execution"]) == (lease_id(task.token), "work", EXECUTION)
    assert (entry["state"], entry["attempt"], entry["heartbeat"]["details"]) == ("Resize", 2, {"lines": 7})
    assert said.startswith(f"lease={lease_id(task.token)[:8]}  task=work  slot=")
    assert said.endswith('s ago: {"lines": 7}\n')
    assert json.loads(as_json)[0]["heartbeat"]["details"] == {"lines": 7}
    output = json.loads(task.output)
    assert (output["execution"], output["keys"]) == (EXECUTION, ["gate"])
    assert 0 < output["remaining"] <= 600
    for message in ("task started", "at work", "task succeeded"):
        assert running.facts(message)[0]["execution"] == EXECUTION


async def status_command(*words: str) -> str:
    """Return what `activity-worker status` prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "activity_worker", "status", *words), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    return said.decode()


@pytest.mark.parametrize(
    ("port", "code", "message"),
    [
        (None, 2, "no port: give --health-port as the worker has it, or set ACTIVITY_HEALTH_PORT"),
        ("0", 2, "--health-port='0': expected a whole number from 1 to 65535"),
        (str(free_port()), 1, "no worker answers at 127.0.0.1:"),
    ],
)
def test_status_says_why_it_shows_nothing(
    port: str | None, code: int, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACTIVITY_HEALTH_PORT", raising=False)

    assert main(["status", *(("--health-port", port) if port else ())]) == code
    assert message in capsys.readouterr().err


def test_status_of_a_task_without_a_heartbeat_says_so() -> None:
    assert describe({"lease": "0123456789", "task": "work"}) == (
        "lease=01234567  task=work  no heartbeat of the handler yet"
    )


def own_address() -> str:
    """Return an address of this machine that is not the loopback one; "" if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        address = str(asking.getsockname()[0])
    return "" if address.startswith("127.") else address


async def test_page_for_the_pod_is_refused_to_other_addresses() -> None:
    tasks = [{"lease": "0123456789", "heartbeat": {"secondsAgo": 0.5, "details": {"lines": 7}}}]
    metrics = WorkerMetrics("1.2.3", 1)
    server = WorkerHealthServer(metrics.registry, lambda: WorkerState.RUNNING, lambda: "", lambda: tasks)
    await server.start(0, "0.0.0.0")
    try:
        status, text = await probe(server.port, "/tasks")
        assert (status, json.loads(text)) == (200, tasks)
        address = own_address()
        if not address:
            pytest.skip("this machine has no address but the loopback one")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{address}:{server.port}/tasks") as response:
                assert (response.status, await response.text()) == (403, "/tasks is for callers in this pod only\n")
            async with session.get(f"http://{address}:{server.port}/livez") as response:
                assert response.status == 200
    finally:
        await server.stop()


async def test_server_without_tasks_has_no_page_for_them() -> None:
    metrics = WorkerMetrics("1.2.3", 1)
    server = WorkerHealthServer(metrics.registry, lambda: WorkerState.RUNNING, lambda: "")
    await server.start(0, "127.0.0.1")
    try:
        assert (await probe(server.port, "/tasks"))[0] == 404
    finally:
        await server.stop()
